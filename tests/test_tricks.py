"""What reaches behind interfaces is named on one page, and everything works without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nki_dist
from nki_dist import tricks
from nki_dist.errors import LaunchError
from nki_dist.linking.passes import left_out
from nki_dist.tricks import TRICKS

PACKAGE = Path(nki_dist.__file__).parent
PAGE = PACKAGE.parent / "docs" / "tricks.md"

BEHIND = re.compile(
    r"(?<!\")\bray\._(?!_)|private\(\"|[\"(]f?\"?/proc|SetAsyncExc|sys\.getrefcount|ctypes\.CDLL"
    r"|memfd_create|malloc_trim"
)
NOT = {"cli/shared/timed.py"}  # a list of folders that are the system's

PROGRAM = """
import numpy as np
import nki_dist as nki
from tests.hosts.kernels import add_halves

x = np.arange(24, dtype=np.float32).reshape(8, 3)
for _ in range(3):
    assert np.array_equal(add_halves[2](x, x), x + x)
with nki.World(ranks=2, lnc=2) as world:
    for sums in world.run(add_halves, x, x):
        assert np.array_equal(sums, x + x)
with nki.World(ranks=1, lnc=2, host="debug") as world:
    assert np.array_equal(world.run(add_halves, x, x)[0], x + x)
print("done")
"""


def behind(path: Path) -> bool:
    return BEHIND.search(path.read_text()) is not None


def named() -> set[str]:
    """Files that the page names, those without a folder in the folder of the one before."""
    found, folder = set(), ""
    for name in re.findall(r"`([a-z_/]+\.py)`", PAGE.read_text()):
        folder = name.rpartition("/")[0] or folder
        found.add(name if "/" in name else f"{folder}/{name}")
    return found


def test_the_page_names_every_file_that_reaches_behind_an_interface() -> None:
    files = {str(p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*.py") if behind(p)} - NOT
    assert len(files) > 15
    assert files - named() == set()
    assert [name for name in named() if not (PACKAGE / name).exists()] == []


def test_the_page_has_the_names_that_the_variable_takes() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.M) == list(TRICKS)


SESSION = PACKAGE / "core_actor" / "ray_session.py"  # what starts Ray


def test_every_name_is_asked_for() -> None:
    code = "".join(p.read_text() for p in PACKAGE.rglob("*.py"))
    asked = re.findall(r'uses\("([a-z-]+)"\)', code)
    (starting,) = re.findall(r"tricks = \((.*)\) if local", SESSION.read_text())
    assert {*asked, *re.findall(r'"([a-z-]+)"', starting)} == set(TRICKS)


@pytest.mark.parametrize("text", ["title", "titles,all", "titles orders"])
def test_another_name_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(tricks.VARIABLE, text)
    with pytest.raises(
        LaunchError, match=r"NKI_DIST_WITHOUT names .*allowed: all, or some of ray-"
    ):
        tricks.uses("titles")
    assert left_out() == frozenset()


def test_names_are_left_out_alone_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tricks.VARIABLE, "titles, orders")
    assert [name for name in TRICKS if not tricks.uses(name)] == ["titles", "orders"]
    monkeypatch.setenv(tricks.VARIABLE, "all")
    assert not any(map(tricks.uses, TRICKS))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRICKS, "all", "NKI_DIST_TRANSPORT=messages"])
def test_launches_are_the_same_without(name: str) -> None:
    variable, _, value = name.rpartition("=")
    environment = os.environ | {variable or tricks.VARIABLE: value, "NKI_DIST_HOST": "ray"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.returncode) == ("done\n", 0), ran.stderr
