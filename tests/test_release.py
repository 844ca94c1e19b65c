"""What `make dist` and `make matrix` refuse, without building or installing anything."""

from __future__ import annotations

import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

import nki_dist
from release import contents
from release.matrix import ROWS

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project that git knows: a package with a page that isn't Python, and a test."""
    for name in ("nki_dist/__init__.py", "nki_dist/pages/style.css", "tests/test_one.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    cached = tmp_path / "nki_dist" / "__pycache__" / "__init__.cpython-311.pyc"
    cached.parent.mkdir()
    cached.write_text("made by Python")
    (tmp_path / ".gitignore").write_text("__pycache__/\n*.whl\n*.gz\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


GOOD = (
    "nki_dist/__init__.py",
    "nki_dist/pages/style.css",
    "nki_dist-0.2.0.dist-info/METADATA",
    "nki_dist-0.2.0.dist-info/licenses/LICENSE",
)


def wheel_of(tree: Path, *names: str) -> Path:
    file = tree / "nki_dist-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return file


def test_a_wheel_with_the_package_and_nothing_else_is_fine(tree):
    assert contents.review_wheel(wheel_of(tree, *GOOD), tree / "nki_dist") == []


def test_a_wheel_is_refused_for_what_it_lacks_and_for_what_it_has(tree):
    wheel = wheel_of(tree, GOOD[0], GOOD[2], "tests/test_one.py")
    assert contents.review_wheel(wheel, tree / "nki_dist") == [
        "the wheel lacks nki_dist/pages/style.css",
        "the wheel has tests/test_one.py",
        "the wheel has no LICENSE",
    ]


def test_a_wheel_that_grew_is_refused(tree, monkeypatch):
    monkeypatch.setitem(contents.LARGEST, "wheel", 100)
    (said,) = contents.review_wheel(wheel_of(tree, *GOOD), tree / "nki_dist")
    assert re.fullmatch(r"the wheel has [\d,]+ bytes; at most 100 are expected", said)


def test_a_source_distribution_has_what_git_has(tree):
    source = tree / "nki_dist-0.2.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name in ("nki_dist/__init__.py", "nki_dist/pages/style.css", "PKG-INFO"):
            (tree / "PKG-INFO").write_text("made by setuptools")
            archive.add(tree / name, f"nki_dist-0.2.0/{name}")
    (tree / "PKG-INFO").unlink()
    assert contents.review_source(source, tree) == [
        "the source distribution lacks tests/test_one.py"
    ]


def test_the_matrix_has_every_python_that_is_promised_both_ways():
    promised = set(re.findall(r"Python :: (3\.\d+)", PROJECT))
    assert len(promised) == 4
    for lowest in (False, True):
        assert {row.python for row in ROWS if row.lowest is lowest} == promised


def test_every_framework_is_tried_with_its_lowest_and_highest_version():
    extras = {"torch", "jax", "mcp"}
    for lowest in (False, True):
        assert extras <= {e for row in ROWS if row.lowest is lowest for e in row.extras}


def test_the_version_is_written_once():
    assert re.fullmatch(r"\d+\.\d+\.\d+", nki_dist.__version__)
    assert 'version = { attr = "nki_dist.__version__" }' in PROJECT
    assert not re.search(r'^version = "', PROJECT, re.MULTILINE)
