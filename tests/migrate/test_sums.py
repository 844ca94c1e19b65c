"""nl.loop_reduce of Beta 1 becomes sums that the kernel keeps."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from bench.migrate.apart import products_apart
from nki_dist.migrate import migrate
from tests.isa.helpers import numbers
from tests.migrate.running import HEADER, both

PRODUCT = """
def kernel(a, b):
    k, m = a.shape
    n = b.shape[1]
    wide = n // 2
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    for half in nl.affine_range(2):
        whole = nl.zeros((3, nl.par_dim(m // 3), wide), dtype=a.dtype)
        for block in nl.affine_range(k // 256):
            for third in nl.affine_range(3):
                part = nl.zeros((m // 3, wide), dtype=nl.float32, buffer=nl.psum)
                for i in nl.affine_range(2):
                    rows = block * 256 + i * 128
                    left = nl.load(a[nl.ds(rows, 128), nl.ds(third * (m // 3), m // 3)])
                    right = nl.load(b[nl.ds(rows, 128), nl.ds(half * wide, wide)])
                    part += nisa.nc_matmul(left, right)
                over = block
                whole[third] = nl.loop_reduce(
                    part, op=np.add, loop_indices=[over], dtype=a.dtype
                )
        for third in nl.affine_range(3):
            place = out[nl.ds(third * (m // 3), m // 3), nl.ds(half * wide, wide)]
            nl.store(place, whole[third])
    return out
"""


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_sum_for_each_round_of_loops_inside(tmp_path, dtype):
    a, b = numbers(1, (768, 33)).astype(dtype), numbers(2, (768, 38)).astype(dtype)
    with products_apart():
        got, text = both(PRODUCT, tmp_path, a, b)
    want = a.astype(np.float64).T @ b.astype(np.float64)
    np.testing.assert_allclose(got.astype(float), want, rtol=1e-2, atol=0.1)
    assert "if block == 0:" in text and "sums_" in text


def test_over_two_loops_from_another_start(tmp_path):
    body = """
    def kernel(x):
        out = nl.ndarray((13, 7), dtype=x.dtype, buffer=nl.shared_hbm)
        most = nl.ndarray((13, 7), dtype=x.dtype)
        for i in nl.affine_range(1, 3):
            for j in nl.affine_range(4):
                tile = nl.load(x[i, j])
                most[...] = nl.loop_reduce(tile, op=np.max, loop_indices=[j, i])
        nl.store(out, most)
        return out
    """
    x = numbers(3, (3, 4, 13, 7))
    got, text = both(body, tmp_path, x)
    np.testing.assert_array_equal(got, x[1:].max((0, 1)))
    assert "if i == 1 and j == 0:" in text


TOTAL = "nl.loop_reduce(t, op=np.add, loop_indices=[i])"
LEFT = {
    f"for j in range(3):\n            if x:\n                t[...] = {TOTAL}": "not every round",
    f"for j in [0, 1]:\n            t[...] = {TOTAL}": "not every round",
    f"for j in range(i):\n            t[...] = {TOTAL}": "length may change",
    f"t[...] = {TOTAL}\n        if x:\n            continue": "something else than the loops",
    f"n = i\n        n = x\n        t[...] = {TOTAL.replace('[i]', '[n]')}": "something else",
    f"h[...] = {TOTAL}": "another dtype",
    f"u = {TOTAL}": "nl.loop_reduce",
    f"t[...] = {TOTAL.replace('np.add', 'np.divide')}": "op=np.divide",
}


@pytest.mark.parametrize("inside", LEFT)
def test_what_a_person_decides(inside):
    body = (
        "def kernel(x):\n"
        "    t = nl.zeros((4, 4), dtype=nl.float32)\n"
        "    h = nl.zeros((4, 4), dtype=nl.float16)\n"
        "    for i in range(3):\n"
        f"        {inside}\n"
        "    return t\n"
    )
    done = migrate(HEADER + body)
    assert LEFT[inside] in done.decisions[0].message, done.decisions
    assert "loop_reduce" in done.text
