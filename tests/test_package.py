"""The package's names, which are imported when they are first asked for."""

from __future__ import annotations

import ast
import importlib
import pickle
from pathlib import Path

import pytest

import nki_dist
from tests.programs import said

PACKAGE = Path(nki_dist.__file__).parent
PACKAGES = sorted(
    {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    - {"__init__", "__main__"}
)
FILES = sorted(f"nki_dist.report.{path.stem}" for path in (PACKAGE / "report").glob("[a-z]*.py"))
# Of a process that simulates a core; the packages above it are the launcher's.
NOT_OF_CORES = {"insight", "launcher", "timing", "report", "compat", "cli"}


def fresh(program: str) -> str:
    """What a new process prints."""
    return said("-c", program)


def imported_for_types() -> set[str]:
    """Names that type checkers know of."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    (block,) = (node for node in blocks if getattr(node.test, "id", "") == "TYPE_CHECKING")
    return {a.name for node in block.body if isinstance(node, ast.ImportFrom) for a in node.names}


def test_type_checkers_know_the_same_names() -> None:
    assert imported_for_types() == set(nki_dist.__all__)


@pytest.mark.parametrize("name", nki_dist.__all__)
def test_a_name_is_the_one_of_its_file(name: str) -> None:
    place = nki_dist._PLACES[name]
    module = importlib.import_module(f"nki_dist.{place or name}")
    assert getattr(nki_dist, name) is (getattr(module, name) if place else module)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'nki_dist' has no attribute 'jitt'"):
        nki_dist.jitt  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'jitt'"):
        exec("from nki_dist import jitt")
    assert not hasattr(nki_dist, "__wrapped__")


def test_dir_and_star_are_the_interface() -> None:
    assert dir(nki_dist) == sorted([*nki_dist.__all__, "__version__"])
    found: dict[str, object] = {}
    exec("from nki_dist import *", found)
    assert set(found) - {"__builtins__"} == set(nki_dist.__all__)


def test_classes_are_pickled_by_their_files() -> None:
    assert pickle.loads(pickle.dumps(nki_dist.World)) is nki_dist.World


def test_what_a_core_imports() -> None:
    names = fresh("import sys, nki_dist.core_actor.actor; print(*sys.modules)").split()
    packages = {name.split(".")[1] for name in names if name.startswith("nki_dist.")}
    assert "runtime" in packages and "nki_dist.runtime.stepping" not in names
    assert not packages & NOT_OF_CORES


def test_what_a_launching_program_imports() -> None:
    """Records, drift and stepping are imported by those who use them."""
    program = "import sys, nki_dist; nki_dist.jit, nki_dist.World; print(*sys.modules)"
    names = fresh(program).split()
    packages = {name.split(".")[1] for name in names if name.startswith("nki_dist.")}
    assert "launcher" in packages and "nki_dist.runtime.stepping" not in names
    assert not packages & {"insight", "report", "core_actor"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"nki_dist.{package}" for package in PACKAGES] + FILES)
def test_every_room_can_be_imported_first(name: str) -> None:
    """Nothing has imported the others before, as the package's `__init__.py` once did."""
    fresh(f"import {name}")
