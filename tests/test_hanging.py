"""A test that hangs ends, and says where: with this project's settings, but shorter times."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("pytest_timeout")

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
HANGS = """
import threading

never = threading.Event()


def in_the_other_thread():
    never.wait()


def test_hangs():
    threading.Thread(target=in_the_other_thread, daemon=True).start()
    never.wait()  # here


def test_comes_afterwards():
    assert not never.is_set()
"""
DEAF = """
import signal
import time


def test_does_not_listen():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(3)  # here
    signal.alarm(0)
"""


def tried(tmp_path: Path, text: str, *settings: str, processes: int = 0) -> tuple[int, str]:
    """Exit status and output of pytest on a file, with settings in place of the project's."""
    file = tmp_path / "test_hangs.py"
    file.write_text(textwrap.dedent(text))
    options = [part for setting in settings for part in ("-o", setting)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(PROJECT)]
    if processes:
        command += ["-n", str(processes), "--dist", "loadfile"]
    done = subprocess.run(
        [*command, f"--rootdir={tmp_path}", *options, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("processes", [0, 2])
def test_a_test_that_hangs_fails_with_the_stacks_of_all_threads(tmp_path, processes):
    if processes:
        pytest.importorskip("xdist")
    status, said = tried(tmp_path, HANGS, "timeout=1", processes=processes)
    assert status == 1 and "1 failed, 1 passed" in said
    assert re.search(r"Timeout \(?>1(\.0)?s", said)
    assert "never.wait()  # here" in said and "in in_the_other_thread" in said


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_a_test_that_hears_no_signal_shows_its_stack(tmp_path, processes):
    if processes:
        pytest.importorskip("xdist")
    settings = ("timeout=0", "faulthandler_timeout=1")
    _, said = tried(tmp_path, DEAF, *settings, processes=processes)
    line = DEAF.splitlines().index("    time.sleep(3)  # here") + 1
    assert "Timeout (0:00:01)!" in said
    assert re.search(rf'test_hangs\.py", line {line} in test_does_not_listen', said)


def test_the_limits_are_generous_and_in_this_order(pytestconfig):
    limit, stacks = (float(pytestconfig.getini(n)) for n in ("timeout", "faulthandler_timeout"))
    assert 300 <= limit < stacks
    assert pytestconfig.getini("timeout_method") == "signal"
