"""What `make` installs for whom, and how a run of the tests says how far it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

@pytest.mark.parametrize("n", range(40))
def test_number(n):
    if n == 2:
        pytest.skip("not this one")
    assert n != 20
"""


def commands(target: str, folder: Path) -> str:
    """What make would run where nothing is installed."""
    if not shutil.which("make"):
        pytest.skip("no make")
    made = ["make", "-n", target, f"VENV={folder}", "PYTHON=python3"]
    return subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_demo_needs_no_tools_of_developers(tmp_path):
    demo, tests = commands("demo", tmp_path), commands("test", tmp_path)
    assert "pip install" in demo and "[dev]" not in demo
    assert "[dev]" in tests and tests.count("-m venv") == 1  # on top of what the demo has


@pytest.mark.parametrize(("program", "status"), [("print('well')", 0), ("exit('no')", 1)])
def test_what_a_step_prints_is_shown_if_it_fails(program, status):
    command = [str(ROOT / ".ci" / "doing"), "trying it", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status
    shown = r"done in \d+ s\n" if status == 0 else r"failed after \d+ s:\nno\n"
    assert re.fullmatch(rf"  trying it \.\.\. {shown}", done.stdout)


def test_steps_are_lines(tmp_path):
    (tmp_path / "test_numbers.py").write_text(TESTS)
    options = [
        "-q",
        "-p",
        "tests.steps",
        "-o",
        "console_output_style=classic",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.split("\n")
    assert lines[0] == "looking for tests ..." and lines[1].endswith("40 tests")
    shares = [int(line.split("%")[0]) for line in lines if line.endswith("  test_numbers.py")]
    assert shares == [*range(5, 101, 5)]
    failed = next(n for n, line in enumerate(lines) if "FAILED test_numbers.py::" in line)
    assert lines[failed].startswith(" 50 %") and "[20] (call)" in lines[failed]
    assert "1 failed, 38 passed, 1 skipped" in done.stdout
