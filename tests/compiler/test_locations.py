"""Whose line an instruction comes from: the library's frames are passed over, kernels' aren't."""

from __future__ import annotations

from pathlib import Path

import pytest

import nki_dist
from nki_dist.compiler.locations import Locations

PACKAGE = Path(nki_dist.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
SHIPPED = [path for path in FILES if path.is_relative_to(PACKAGE / "kernels")]


def innermost(file: Path | str) -> str:
    """The file of the innermost user frame when code of `file` asks, called from here."""
    names: dict = {}
    exec(
        compile("def ask():\n    return Locations().frame(0)", str(file), "exec"), globals(), names
    )
    return names["ask"]().f_code.co_filename


def raised(file: Path | str) -> str | None:
    """Where an error counts as raised that code of `file` raises, called from here."""
    try:
        exec(compile("1 / 0", str(file), "exec"))
    except ZeroDivisionError as error:
        return Locations().raised(error)
    raise AssertionError("unreachable")


def test_no_file_of_the_library_is_the_users():
    library = sorted(set(FILES) - set(SHIPPED))
    assert [str(p) for p in library if innermost(p) != __file__] == []
    assert [str(p) for p in library if not str(raised(p)).startswith(__file__)] == []


@pytest.mark.parametrize("file", ["a_room_to_come/executor.py", "a_file_to_come.py"])
def test_a_new_room_is_the_librarys(file):
    assert innermost(PACKAGE / file) == __file__


def test_shipped_kernels_count_as_the_users():
    assert SHIPPED
    assert [innermost(path) for path in SHIPPED] == [str(path) for path in SHIPPED]
    assert [raised(path) for path in SHIPPED] == [f"{path}:1" for path in SHIPPED]


@pytest.mark.parametrize("file", ["/home/me/nki_dist_kernels/mine.py", "/home/me/kernels/mine.py"])
def test_files_outside_the_package_are_the_users(file):
    assert innermost(file) == file
