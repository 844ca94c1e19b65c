"""Every name that the pages of SDK 2.33 declare is there, as declared; docs/releases.md lists them.

`tests/data/nki_api_0_7.json` is what the pages say. The page here names a test for each row; both
are looked up.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

from nki_dist import codes, release
from tests.test_public_api import API_0_7, parameters

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "releases.md"
MODULES = {
    "nki": "nki_dist",
    "nki.language": "nki_dist.language",
    "nki.isa": "nki_dist.isa",
    "nki.collectives": "nki_dist.collectives",
    "nki.compiler": "nki_dist.compat.compiler",
}


def ours(name: str) -> object:
    """What stands for a dotted name of AWS's."""
    module = max((m for m in MODULES if name.startswith(f"{m}.")), key=len)
    found: object = importlib.import_module(MODULES[module])
    for part in name.removeprefix(f"{module}.").split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", API_0_7["functions"])
def test_parameters_are_those_of_the_page(name):
    function = ours(name)
    have = parameters(function)
    assert (have[1:] if "self" in have[0] else have) == API_0_7["functions"][name]


@pytest.mark.parametrize("name", API_0_7["classes"])
def test_classes_have_the_members_of_the_page(name):
    cls = ours(name)
    assert inspect.isclass(cls)
    slots = {s for c in cls.__mro__ for s in getattr(c, "__slots__", ())}
    assert [m for m in API_0_7["classes"][name] if not hasattr(cls, m) and m not in slots] == []


@pytest.mark.parametrize("name", API_0_7["constants"])
def test_constants_are_there(name):
    assert ours(name).name == name.rpartition(".")[2]


# ---- the page -----------------------------------------------------------------------------------

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().partition("## Every name of 0.7")[2].splitlines()
    if line.startswith("| `")
]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_name_has_a_row():
    rows = {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[0])}
    names = {*API_0_7["functions"], *API_0_7["classes"], *API_0_7["constants"]}
    assert {n.removesuffix(".__init__") for n in names} - rows == set()
    assert {*release.REMOVED, *release.DEPRECATED} - rows == set()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_says_where_what_and_which_test(row):
    name, page, says, here, tests = row
    assert page and says and here.startswith(("built", "refused", "no effect", "as before"))
    found = TEST.findall(tests)
    assert found, name
    for file, function in found:
        tree = ast.parse((ROOT / file).read_text())
        assert function in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}, function
    for code in re.findall(r"\[`([\w-]+)`\]\(codes\.md\)", here):
        assert code in codes.CODES
    if here.startswith("refused"):
        assert "codes.md" in here
