"""Grids of program instances of Beta 1 become loops of the kernel, and an argument."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

pytest.importorskip("libcst")

import nki_dist as nki
from nki_dist.compat import beta1
from nki_dist.migrate import migrate
from tests.isa.helpers import numbers
from tests.migrate.running import HEADER, loaded

ADDED = """
@nki.jit
def added(x, y):
    \"\"\"Blocks of x + y.\"\"\"
    # where this instance works
    row = nl.program_id(0) * 64
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    columns = x.shape[1] // nl.num_programs(1)
    i, j = nl.mgrid[0:64, 0:32]
    rows = row + i
    wide = nl.program_id(1) * columns + j
    if nl.program_id(0) == 1:
        total = nl.load(x[rows, wide]) - nl.load(y[rows, wide])
    else:
        total = nl.load(x[rows, wide]) + nl.load(y[rows, wide])
    nl.store(out[rows, wide], total)
    # shared by all
    return out


def kernel(x, y):
    tall = x.shape[0] // 64
    return nki.simulate_kernel(added[tall, 3], x, y)
"""


def test_two_axes(tmp_path):
    text = HEADER + ADDED
    done = migrate(text)
    assert not done.decisions, done.decisions
    assert "nki.simulate(added)(x, y, grid=(tall, 3))" in done.text
    assert "def added(x, y, grid=(1, 1)):" in done.text and "program_id" not in done.text
    assert "x.shape[1] // grid[1]" in done.text and "# where this" in done.text
    assert migrate(done.text).text == done.text
    x, y = numbers(1, (192, 96)), numbers(2, (192, 96))
    want = loaded(text, tmp_path, beta1)(x, y)
    got = loaded(done.text, tmp_path, nki)(x, y)
    assert got.tobytes() == want.tobytes()
    y[64:128] *= -1
    np.testing.assert_array_equal(got, x + y)


@pytest.mark.parametrize("grid, given", [("4", "4,"), ("n // 2", "n // 2,"), ("n, 2", "n, 2")])
def test_launches(grid, given):
    body = f"""
    @nki.jit
    def f(x, k=3):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.load(x[nl.program_id(axis=0)]))
        return out

    def g(n, x):
        return f[{grid}](x), f(x)
    """
    done = migrate(HEADER + textwrap.dedent(body))
    assert f"return f(x, grid=({given})), f(x)" in done.text and not done.decisions
    assert [c.line for c in done.changes if c.rule == "instances"] == [15]


def test_no_grid():
    body = "@nki.jit\ndef f(x):\n    return nl.exp(nl.load(x[nl.program_id(0)]))\n\n\ny = f[0](x)\n"
    done = migrate(HEADER + body)
    assert done.text.endswith("\n\n\ny = f(x)\n") and "nl.program_id(0)" in done.text
    assert not done.decisions


KERNEL = """
@nki.jit
def f(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    n = nl.program_id(0)
    nl.store(out[n], nl.load(x[n]))
    return out

"""
LEFT = {
    "": ("y = f[nl.nc(2)](x)", "let the kernel loop"),
    "cores": ("grid = nl.spmd_dim(4, nl.nc(2))\ny = f[grid, 3](x)", "let the kernel loop"),
    "name": ("def g(grid, x):\n    return f[grid](x)", "let the kernel loop"),
    "sizes": ("y = f[4](x)\nz = f[4, 2](x)", "let the kernel loop"),
    "    return out\n": ("y = f[4](x)", "returns elsewhere"),
    "n = nl.program_id(0)": ("y = f[4](x)", "an axis that the text doesn't say"),
    "    nl.store": ("y = f[4](x)", "a tensor in HBM that is made where"),
    "return out": ("y = f[4](x)", "what an instance returns"),
    "def f(x)": ("y = f[4](x)", "arguments by name only"),
}
OTHERS = {
    "    return out\n": "    if x:\n        return out\n    return out\n",
    "n = nl.program_id(0)": "n = nl.program_id(x)",
    "    nl.store": "    m = nl.zeros((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)\n    nl.store",
    "return out": "return nl.load(x[n])",
    "def f(x)": "def f(x, *, k)",
}


@pytest.mark.parametrize("part", LEFT)
def test_what_a_person_decides(part):
    launch, why = LEFT[part]
    text = HEADER + KERNEL.replace(part, OTHERS.get(part, part)) + launch + "\n"
    done = migrate(text)
    found = [d.message for d in done.decisions if d.rule == "instances"]
    assert any(why in message for message in found), done.decisions
    assert "instance_0" not in done.text and launch in done.text
