"""`nki-dist record` and `nki-dist drift`: questions to a program that isn't changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.programs import python

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def exponential(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    half = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.activation(dst=half, op=nl.exp, data=tile)
    nisa.tensor_scalar(dst=tile, data=half, op0=nl.multiply, operand0=3.0)
    nl.store(x, tile)
    nl.store(out, tile)
    return out


x = np.linspace(0, 1, 21, dtype=np.float32).reshape(7, 3)
for n in range(3):
    y = x + 100 * (n == 1)
    print(f"sum {exponential(y).sum():.3f}")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    x = np.linspace(0, 1, 21).reshape(7, 3)
    np.save(tmp_path / "want.npy", 2 * np.exp(x))
    return tmp_path


def run(folder, *arguments):
    return python(
        "-m", "nki_dist", *arguments, folder=folder, PYTHONPATH=str(ROOT), NKI_DIST_HOST="inprocess"
    )


def test_what_is_asked_of_the_first_launch(program):
    done = run(program, "record", "--index", "2,1", "--tensor", "half", "program.py")
    assert done.returncode == 0, done.stderr
    assert "==== exponential, launch 1 of its kind" in done.stdout
    assert "launch 2" not in done.stdout
    assert "every number is finite" in done.stdout
    assert "wrote 7x3 bfloat16 to half: 1, 1.05469, 1.10156" in done.stdout
    assert "look at" in done.stdout and "program.py:15 nisa.tensor_scalar" in done.stdout


def test_another_launch_with_its_own_arguments(program):
    """The kernel writes to its argument; what is recorded is what it found."""
    done = run(program, "record", "--launch", "2", "--json", "program.py", "3")
    assert done.returncode == 3, "the program's own"
    (answer,) = json.loads(done.stdout)
    first = answer["first_non_finite"]
    assert (answer["launch"], first["value"], first["tensor"]) == (2, "inf", "half")
    assert first["index"] == [0, 0] and first["location"].endswith("program.py:14")
    assert "sum inf" in done.stderr


def test_all_launches_and_a_page(program):
    done = run(program, "record", "--launch", "all", "--html", "page.html", "program.py")
    assert done.stdout.count("==== exponential, launch") == 3
    page = (program / "page.html").read_text()
    assert page.count("<h2>exponential, launch") == 3 and "inf at half[0, 0]" in page
    names = re.findall('href="([^"]*)"', page)
    assert names == ["page-1.html", "page-2.html", "page-3.html"]
    assert any("inf at half[0, 0]" in (program / n).read_text() for n in names)


def test_a_reference_from_a_file(program):
    given = ("--expected", "want.npy")
    done = run(program, "record", *given, "--json", "program.py")
    (answer,) = json.loads(done.stdout)
    assert answer["origin"]["what"] == "out[6, 2]", "the element that is farthest off"
    (compared,) = answer["origin"]["expected"]
    assert (compared["off"], compared["size"], compared["index"]) == (21, 21, [6, 2])
    assert compared["got"] > compared["wanted"] == pytest.approx(2 * np.e)
    assert answer["origin"]["steps"][0]["location"].endswith("program.py:15")
    assert answer["origin"]["sources"][0]["name"] == "x"


def test_drift_and_its_tolerance(program):
    done = run(program, "drift", "program.py")
    assert done.returncode == 0, done.stderr
    first = done.stdout.partition("came in\n")[2].splitlines()[0]
    assert "program.py:14 nisa.activation wrote half (bfloat16)" in first
    assert "lines added nothing" in done.stdout
    done = run(program, "drift", "--tolerance", "1e-4", "--json", "program.py")
    assert done.returncode == 1
    (answer,) = json.loads(done.stdout)
    assert answer["lines"][0]["tensor"] == "half" and answer["lines"][0]["added"] > 1e-4
    assert run(program, "drift", "--tolerance", "0.1", "program.py").returncode == 0


def test_what_no_launch_can_be_asked(program):
    done = run(program, "record", "--tensor", "tail", "program.py")
    assert done.returncode == 1
    assert "'tail' is no tensor and no line of exponential; near are tile" in done.stdout
    done = run(program, "record", "--kernel", "logarithm", "program.py")
    assert done.returncode == 1
    assert "no launch was asked; the program launched exponential (3)" in done.stdout


@pytest.mark.parametrize(
    "options, message",
    [
        (["--launch", "0"], "--launch 0; must be a positive number, or all"),
        (["--index", "a,b"], "--index a,b; must be numbers with commas between them"),
        (["--index", "1,1", "--expected", "none.npy"], "--expected none.npy can't be read"),
    ],
)
def test_wrong_options(program, options, message):
    done = run(program, "record", *options, "program.py")
    assert done.returncode == 1 and done.stdout == ""
    assert message in done.stderr
    assert "[command-option]" in done.stderr


def test_a_negative_tolerance(program):
    done = run(program, "drift", "--tolerance", "-1", "program.py")
    assert done.returncode == 1 and "--tolerance -1; must not be negative" in done.stderr


def test_a_debugged_program(program):
    done = run(program, "record", "--launch", "2", "--host", "debug", "program.py")
    assert "inf at half[0, 0]" in done.stdout, done.stdout + done.stderr
