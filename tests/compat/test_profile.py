"""`nki-dist profile` and `nki-dist bench`: reports on programs that don't know about it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from tests.programs import python
from tests.timing.traces import read_trace

from .test_run import ADD, write

PROGRAM = (
    ADD
    + """
@nki.jit
def double(a):
    return add(a, a)

a = np.arange(15, dtype=np.float32).reshape(3, 5)
big = np.ones((128, 2048), np.float32)
for _ in range(3):
    assert (add(a, a) == 2 * a).all()
assert (double(big) == 2).all()
print("computed", sys.argv[1:])
sys.exit(3)
"""
)


def command(name, *arguments, cwd):
    return python("-m", "nki_dist", name, "--host", "inprocess", *arguments, folder=cwd)


def test_profile_of_a_program(tmp_path):
    script = write(tmp_path, "program.py", PROGRAM)
    done = command("profile", "--lnc", "2", "-o", "found", script, "-o", "x", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    own, *reports = done.stdout.split("\n==== ")
    assert own == "computed ['-o', 'x']\n"
    assert reports[0].startswith("kernel 1 of 2, launched 3 times\nadd on trn2, 2 cores: ")
    assert reports[1].startswith("kernel 2 of 2, launched once\ndouble on trn2, 2 cores: ")
    assert "tensor_tensor (vector) at program.py:13" in reports[0]
    for stem in ("1_add", "2_double"):
        numbers = json.loads((tmp_path / "found" / f"{stem}.json").read_text())
        assert f"{numbers['total_us']:,.3f} us simulated" in done.stdout
        trace = read_trace(tmp_path / "found" / f"{stem}.trace.json")
        assert len(trace.events["X"]) == numbers["instructions"]


def test_bench_of_a_program_that_fails(tmp_path):
    text = PROGRAM.replace("sys.exit(3)", "add(a, big)")
    done = command("bench", "--repeat", "2", write(tmp_path, "program.py", text), cwd=tmp_path)
    assert done.returncode == 1 and f"{tmp_path}/program.py:" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[-2:]]
    assert [(r[0], r[1], r[-1]) for r in rows] == [("3", "1", "add"), ("1", "1", "double")]


@nki.jit
def scaled(x, dynamic=False):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    rounds = nl.dynamic_range(nisa.register_alloc(nl.load(x)[0:1, 0:1])) if dynamic else range(2)
    for _ in rounds:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=3)
    nl.store(out, t)
    return out


def saved(tmp_path, **options):
    x = np.ones((3, 5), np.int32)
    path = tmp_path / "scaled.nki-dist"
    nki.simulate(scaled[2]).compile(x, **options).save(path)
    return x, str(path)


def test_profile_of_a_compiled_kernel(tmp_path, capsys):
    x, path = saved(tmp_path)
    assert main(["profile", "-o", str(tmp_path / "found"), path]) == 0
    want = nki.profile(scaled[2], host="inprocess")(x).profile
    assert str(want) in capsys.readouterr().out
    assert json.loads((tmp_path / "found" / "1_scaled.json").read_text()) == want.to_dict()


def test_a_compiled_kernel_whose_loops_depend_on_data_is_refused(tmp_path, capsys):
    assert main(["profile", saved(tmp_path, dynamic=True)[1]]) == 1
    assert "kernel scaled has loops whose rounds are only known" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (["profile", "--most", "0", "x"], "--most 0"),
        (["bench", "--repeat", "0", "x"], "--repeat 0"),
    ],
)
def test_wrong_options(line, text, capsys):
    assert main(line) == 1
    assert f"{text}; must be positive" in capsys.readouterr().err
