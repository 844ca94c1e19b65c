"""Options of commands that run a program: what is wrong with them is said before it runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import nki_dist
from nki_dist import cli
from tests.programs import python

pytest_plugins = ["pytester"]

PROGRAM = """
import numpy as np
import nki
import nki.language as nl

print("it ran")

@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out

nki.simulate(copied)(np.ones((2, 3), np.float32))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("NEURON_LOGICAL_NC_CONFIG", "NKI_DIST_CHECK", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.setenv(name, "")  # what the command sets is taken back
        monkeypatch.delenv(name)
    (tmp_path / "prog.py").write_text(PROGRAM)
    (tmp_path / "place").mkdir()
    (tmp_path / "file").write_text("")
    return tmp_path


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own: programs stay what they make of their process."""
    return python("-m", "nki_dist", *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("profile --html place", "--html place: is a folder; name a file"),
        ("profile --html none/x.html", "there is no folder .*/none; name a file"),
        ("profile --output file", "--output file: is no folder; name a folder"),
        ("profile --output-format json --output-file place", "--output-file place: is a folder"),
        ("record --html none/x.html", "there is no folder"),
        ("drift --html place", "is a folder"),
        ("run --lnc 3", "--lnc 3; trn2 allows 1 to 2"),
        ("run --lnc 0", "--lnc 0; trn2 allows 1 to 2"),
        ("profile --check strickt", "check='strickt'"),
    ],
)
def test_nothing_runs_with_a_wrong_option(folder, capsys, words, said) -> None:
    assert cli.main([*words.split(), "prog.py"]) == 1
    captured = capsys.readouterr()
    assert "it ran" not in captured.out + captured.err
    assert re.search(said, captured.err), captured.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize(
    "words", ["profile --output-format json --output-file /dev/full", "record --html /dev/full"]
)
def test_a_full_disk_is_said_in_words(folder, words) -> None:
    done = command(*words.split(), "prog.py")
    said = done.stderr
    assert (
        done.returncode == 1
        and "/dev/full: No space left on device; name a file" in said
        and "Traceback" not in said
    )


@pytest.mark.parametrize("name", ["check", "profile", "record"])
def test_a_missing_program_is_said_by_the_command(folder, name) -> None:
    done = command(name, "missing.py")
    assert done.returncode == 2 and done.stderr.startswith(f"nki-dist {name}: can't open file")
    assert "no kernel" not in done.stdout + done.stderr


def test_a_check_says_which_name_was_meant(folder) -> None:
    text = PROGRAM.replace("nl.store(", "nl.stor(")
    Path("prog.py").write_text(text + "\nprintt(1)\n")
    report = json.loads(command("check", "--json", "prog.py").stdout)
    assert report["kernels"][0]["diagnostics"][0]["message"].endswith("Did you mean: 'store'?")
    assert report["exception"]["hint"] == "Did you mean: 'print'?"


def test_what_follows_from_a_mistake_shows_the_program_only(folder) -> None:
    text = PROGRAM.replace("nl.store(", "nl.stor(").replace("nki.simulate", "y = nki.simulate")
    Path("prog.py").write_text(text + "\nprint(y[0])\n")
    done = command("check", "prog.py")
    assert "print(y[0])" in done.stderr and "[result-unknown]" in done.stderr
    assert os.path.dirname(nki_dist.__file__) not in done.stderr


def test_a_mark_with_a_wrong_option_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.nki_world(rank=4)
        def test_it(nki_world):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "nki_dist.pytest_plugin")
    result.stdout.fnmatch_lines(["*nki_world of *test_it*rank*it takes what World takes: ranks,*"])
