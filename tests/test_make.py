"""What `make` installs for whom, and how a run of the tests says how far it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import python

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(20))
def test_number(n):
    if n == 2:
        pytest.skip("not this one")
    assert n != 10
"""


def commands(target: str, folder: Path, *more: str) -> str:
    """What make would run where nothing is installed."""
    if not shutil.which("make"):
        pytest.skip("no make")
    made = ["make", "-n", target, f"VENV={folder}", "PYTHON=python3", *more]
    bare = {name: value for name, value in os.environ.items() if name != "JOBS"}
    done = subprocess.run(made, cwd=ROOT, env=bare, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_demo_needs_no_tools_of_developers(tmp_path):
    demo, tests = commands("demo", tmp_path), commands("test", tmp_path)
    assert "pip install" in demo and "[dev]" not in demo
    assert "[dev]" in tests and tests.count("-m venv") == 1  # on top of what the demo has


def test_default_tests_share_the_processors_and_slow_ones_have_them_alone(tmp_path):
    assert " -n 2 --dist loadfile " in commands("test", tmp_path)
    assert " -n 5 --dist loadfile " in commands("test", tmp_path, "JOBS=5")
    assert " -n " not in commands("slow", tmp_path).split("-m pytest")[1]


@pytest.mark.parametrize(("program", "status"), [("print('well')", 0), ("exit('no')", 1)])
def test_what_a_step_prints_is_shown_if_it_fails(program, status):
    command = [str(ROOT / ".ci" / "doing"), "trying it", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    shown = r"done in \d+ s\n" if status == 0 else r"failed after \d+ s:\nno\n"
    assert re.fullmatch(rf"  trying it \.\.\. {shown}", done.stdout)


@pytest.mark.parametrize("processes", [1, 2])
def test_steps_are_lines(tmp_path, processes):
    """Tests of two processes are counted together."""
    for file in ("test_first.py", "test_second.py"):
        (tmp_path / file).write_text(TESTS)
    options = ["-q", "-p", "tests.steps", "-o", "console_output_style=classic"]
    if processes > 1:
        pytest.importorskip("xdist")
        options += ["-n", str(processes), "--dist", "loadfile"]
    done = python(
        "-m",
        "pytest",
        *options,
        "-p",
        "no:cacheprovider",
        tmp_path,
        folder=tmp_path,
        PYTHONPATH=str(ROOT),
    )
    lines = done.stdout.split("\n")
    assert lines[0] == "looking for tests ..."
    assert len([line for line in lines if re.fullmatch(r"  0 %   0:0\d  40 tests", line)]) == 1
    steps = [line for line in lines if line.endswith(("  test_first.py", "  test_second.py"))]
    assert [int(line.split("%")[0]) for line in steps] == [*range(5, 101, 5)]
    failed = [line for line in lines if re.match(" +[0-9]+ %.* FAILED ", line)]
    assert len(failed) == 2 and all("[10] (call)" in line for line in failed)
    if processes == 1:
        assert failed[0].startswith(" 25 %") and "test_first.py::test_number[10]" in failed[0]
    assert "2 failed, 36 passed, 2 skipped" in done.stdout
