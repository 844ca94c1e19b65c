"""`.indirect()` operands of the Tensor engine, whose offsets come in groups of 32 partitions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.isa.helpers import numbers, output, run
from tests.isa.test_indirection import snake

BF16 = ml_dtypes.bfloat16


def _matmul(a, b, i, j, k, accumulate=None, times=1, **options):
    n = 35

    def kernel(a, b, i, j, k):
        a, b, i, j, k = [nl.load(t) for t in (a, b, i, j, k)]
        total = nl.ndarray((n, 50), dtype=nl.float32, buffer=nl.psum)
        nisa.memset(total, 3)
        for _ in range(times):
            nisa.nc_matmul(
                total.indirect(k, n),
                a.indirect(i, n),
                b.indirect(j, n),
                accumulate=accumulate,
                **options,
            )
        out = nl.ndarray((n, 50), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(out, total)
        return output(out)

    return run(kernel, a, b, i, j, k, platform="trn3")


@pytest.mark.parametrize(("accumulate", "times"), [(None, 1), (None, 3), (True, 2), (False, 2)])
def test_matmul_uses_groups_of_32(accumulate, times: int) -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-3, 4, (64, 60)).astype(BF16) for _ in range(2))
    i, j, k = rng.permutation(60)[:35], rng.permutation(60)[:35], rng.permutation(50)[:35]
    got = _matmul(a, b, *(snake(o, 64, 32) for o in (i, j)), snake(k, 35, 32), accumulate, times)
    product = a.astype(np.float64)[:, i].T @ b.astype(np.float64)[:, j]
    want = np.full((35, 50), 3.0)
    want[:, k] = product * (1 if accumulate is False else times) + (3 if accumulate else 0)
    np.testing.assert_array_equal(got, want)


def test_partly_accumulated_columns_start_and_add_each_by_itself() -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(-3, 4, (32, 8)).astype(BF16) for _ in range(2))

    def kernel(a, b, first, second):
        a, b, first, second = [nl.load(t) for t in (a, b, first, second)]
        total = nl.ndarray((8, 6), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total[:, 0:6], a, b[:, 0:6])
        nisa.tensor_copy(total.indirect(first, 2), a[0:8, 0:2])  # ends their accumulation
        nisa.nc_matmul(total.indirect(second, 3), a, b[:, 0:3])
        out = nl.ndarray((8, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(out, total)
        return output(out)

    got = run(kernel, a, b, snake([4, 1], 8), snake([1, 2, 5], 8, 32), platform="trn3")
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    want = a64.T @ b64[:, :6]
    want[:, [4, 1]] = a64[:8, :2]
    more = a64.T @ b64[:, :3]
    want[:, 1] = more[:, 0]  # replaced: a copy was there
    want[:, [2, 5]] += more[:, 1:]
    np.testing.assert_array_equal(got, want)


def test_matmul_refuses() -> None:
    x, i = np.ones((64, 60), BF16), snake([1] * 35, 64, 32)
    k = snake(range(35), 35, 32)
    with pytest.raises(NkiValidationError, match=r"tile_position=\(32, 0\)"):
        _matmul(x[:32], x[:32], i[:32], i[:32], k, tile_position=(32, 0), tile_size=(32, 128))
    with pytest.raises(
        NkiValidationError, match=r"stationary is an .indirect\(\) view of dtype float32"
    ):
        _matmul(x.astype(np.float32), x.astype(np.float32), i, i, k)
    with pytest.raises(
        NkiValidationError, match=r"moving is an .indirect\(\) view; not allowed with is_transpose"
    ):
        _matmul(x, x, i, i, k, is_transpose=True)


def _mx(direct: bool, other: bool = False):
    def kernel(x, i, j):
        x, i, j = nl.load(x), nl.load(i), nl.load(j)
        data = nl.ndarray((32, 12), dtype=nl.float8_e4m3fn_x4)
        scales = nl.ndarray((32, 12), dtype=nl.uint8)
        nisa.memset(scales, 0)
        nisa.quantize_mx(data, x, scales)
        left, right = [a.indirect(i, 6) for a in (data, scales)]
        if other:
            right = scales.indirect(j, 6)
        if not direct:
            views = left, right
            left, right = [nl.ndarray((32, 6), dtype=a.dtype) for a in views]
            nisa.tensor_copy(left, views[0])
            nisa.tensor_copy(right, views[1])
        total = nl.ndarray((6, 12), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(total, left, data, right, scales)
        out = nl.ndarray((6, 12), dtype=nl.float32)
        nisa.tensor_copy(out, total)
        return output(out)

    x, i = numbers(9, (32, 48), BF16), snake([7, 2, 11, 0, 5, 4], 32, 32)
    return run(kernel, x, i, i, platform="trn3")


def test_packed_matmul_gathers_data_and_scales_alike() -> None:
    np.testing.assert_array_equal(_mx(True), _mx(False))
    with pytest.raises(NkiValidationError, match=r"both are .* with the same index"):
        _mx(True, other=True)


def test_a_run_time_offset_outside_a_loop_decides_which_columns_accumulate() -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.integers(-3, 4, (32, 8)).astype(BF16) for _ in range(2))

    def kernel(a, b, where):
        a, b, where = nl.load(a), nl.load(b), nl.load(where)
        register = nisa.register_alloc()
        nisa.register_load(register, where)
        total = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(total[:, nl.ds(register, 4)], a, b[:, 0:4])
        nisa.nc_matmul(total[:, 0:4], a, b[:, 4:8])  # first in its columns, if the other moved
        nisa.nc_matmul(total[:, 4:8], a, b[:, 4:8])
        out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(out, total)
        return output(out)

    one, two = (
        a.astype(np.float64).T @ b.astype(np.float64)[:, s] for s in (slice(4), slice(4, 8))
    )
    for start in (0, 4):
        want = np.concatenate([two, two], 1)
        want[:, start : start + 4] += one
        np.testing.assert_array_equal(run(kernel, a, b, np.array([[start]], np.int32)), want)
