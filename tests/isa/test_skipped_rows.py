"""oob_mode of DMA row by row, against a reference that looks at every element by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from tests.isa.helpers import numbers, output
from tests.isa.skipping import SKIP, Pattern, addresses, at, made, rows

# ---- patterns in HBM, anywhere ------------------------------------------------------------------

SHAPE = (12, 10)
TILE = (6, 8)
PATTERNS = {  # of 48 elements of a tensor (12, 10)
    "rows": ([[10, 6], [1, 8]], 0),
    "rows, from the midst": ([[10, 6], [1, 8]], 32),
    "from a negative offset": ([[10, 6], [1, 8]], -20),
    "more than the tensor": ([[30, 6], [1, 8]], 0),
    "halves of rows": ([[10, 6], [4, 2], [1, 4]], 1),
    "columns": ([[1, 6], [10, 8]], 0),
    "backwards": ([[-10, 6], [1, 8]], 60),
    "one row again and again": ([[0, 6], [1, 8]], 5),
    "one dimension": ([[1, 48]], 3),
    "across each other": ([[12, 3], [3, 2], [7, 2], [1, 4]], 0),
    "dimensions that cut": ([[20, 4], [1, 12]], 0),
    "groups of rows": ([[30, 2], [10, 3], [1, 8]], 2),
}
INDICES = [0, 2, 6, 8, 9, 11, 12, 40, -1, -3, -5, -40, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("register", [False, True])
def test_rows_read_from_anywhere(name: str, register: bool) -> None:
    pattern, offset = PATTERNS[name]
    x = numbers(1, SHAPE)

    def kernel(x, start):
        tile, index = nl.ndarray(TILE, dtype=x.dtype, buffer=nl.sbuf), nl.load(start)
        nisa.memset(dst=tile, value=7)
        index = nisa.register_alloc(index) if register else index
        source = x.ap(pattern, offset, scalar_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=source, oob_mode=SKIP)
        return output(tile)

    run = made(kernel)
    static, here = addresses(pattern, offset), np.arange(48)
    pieces = rows((static, pattern[-1][1]), (here, 8))
    partly = 0
    for index in INDICES:
        moved = static + index * 10
        want = np.full(48, 7, np.float32)
        for row in pieces:
            if (moved[row] >= 0).all() and (moved[row] < x.size).all():
                want[row] = x.reshape(-1)[moved[row]]
        partly += 0 < (want != 7).sum() < 48
        assert np.array_equal(run(x, at(index)), want.reshape(TILE)), index
    assert partly or name == "one row again and again"


@pytest.mark.parametrize("name", [n for n in PATTERNS if n != "one row again and again"])
@pytest.mark.parametrize("source", ["sbuf", "hbm", "bfloat16"])
def test_rows_written_to_anywhere(name: str, source: str) -> None:
    pattern, offset = PATTERNS[name]
    x, old = numbers(1, TILE), numbers(2, SHAPE)
    x = x.astype(ml_dtypes.bfloat16) if source == "bfloat16" else x

    def kernel(old, x, start):
        data = x if source == "hbm" else nl.load(x)
        target = old.ap(pattern, offset, scalar_offset=nl.load(start), indirect_dim=0)
        nisa.dma_copy(dst=target, src=data, oob_mode=SKIP)
        return old

    run = made(kernel)
    static = addresses(pattern, offset)
    pieces = rows((static, pattern[-1][1]), (np.arange(48), 8))
    for index in INDICES:
        moved = static + index * 10
        want = old.reshape(-1).copy()
        for row in pieces:
            if (moved[row] >= 0).all() and (moved[row] < old.size).all():
                want[moved[row]] = x.reshape(-1)[row].astype(np.float32)
        assert np.array_equal(run(old.copy(), x, at(index)), want.reshape(SHAPE)), index


def _both_moved(dst: Pattern, dst_offset: int, src: Pattern, src_offset: int) -> Any:
    def kernel(old, x, m, n):
        target = old.ap(dst, dst_offset, scalar_offset=nl.load(m))
        source = x.ap(src, src_offset, scalar_offset=nl.load(n))
        nisa.dma_copy(dst=target, src=source, oob_mode=SKIP)
        return old

    return kernel


def test_random_patterns() -> None:
    """Both sides in HBM and moved by an index of their own."""
    rng = np.random.default_rng(3)
    for _ in range(25):
        rank = int(rng.integers(1, 4))
        sizes = [int(n) for n in rng.integers(1, 5, rank)]
        sides = []
        for _ in range(2):
            strides = [int(s) for s in rng.choice([1, 2, 3, 6, 12], rank, replace=False)]
            strides[-1] = int(rng.choice([strides[-1], 1]))
            shape = (int(rng.integers(2, 9)), int(rng.integers(2, 7)))
            sides.append(([list(p) for p in zip(strides, sizes)], int(rng.integers(0, 9)), shape))
        (dst_pattern, dst_offset, dst_shape), (src_pattern, src_offset, src_shape) = sides
        to, source = addresses(dst_pattern, dst_offset), addresses(src_pattern, src_offset)
        if len(set(to)) < len(to):
            continue  # which of two rows for one place comes last isn't the question here

        run, last = made(_both_moved(*sides[0][:2], *sides[1][:2])), sizes[-1]
        old, x = numbers(4, dst_shape), numbers(5, src_shape)
        for _ in range(12):
            m, n = (int(k) for k in rng.integers(-4, 9, 2))
            want = old.reshape(-1).copy()
            for row in rows((to, last), (source, last)):
                here, there = to[row] + m * dst_shape[1], source[row] + n * src_shape[1]
                inside = min(*here, *there) >= 0 and max(here) < old.size and max(there) < x.size
                if inside:
                    want[here] = x.reshape(-1)[there]
            got = run(old.copy(), x, at(m), at(n))
            assert np.array_equal(got.reshape(-1), want), (sides, m, n)


@pytest.mark.parametrize("shapes", [((9, 1), (6, 1)), ((9, 1), (6,)), ((9,), (6, 1)), ((9,), (6,))])
def test_rows_of_one_element(shapes: Any) -> None:
    """Neighbours, but the kernel writes them one below the other; else they are one row."""
    x, old = numbers(1, shapes[0]), numbers(2, shapes[1])

    def kernel(x, old, start):
        window = (
            nl.ds(nisa.register_alloc(nl.load(start)), 6),
            *[slice(0, 1)] * (len(x.shape) - 1),
        )
        nisa.dma_copy(dst=old, src=x[window], oob_mode=SKIP)
        return old

    run = made(kernel)
    one_row = len(x.shape) == len(old.shape) == 1
    for index in (-2, 0, 3, 5):
        want = old.reshape(-1).copy()
        inside = [k for k in range(6) if 0 <= index + k < 9]
        if len(inside) == 6 or not one_row:
            want[inside] = x.reshape(-1)[[index + k for k in inside]]
        assert np.array_equal(run(x, old.copy(), at(index)).reshape(-1), want), index


# ---- without skip -------------------------------------------------------------------------------


def refused(kernel: Callable[..., Any], *arrays: np.ndarray) -> str:
    with pytest.raises(OutOfBoundsError) as caught:
        made(kernel)(*arrays)
    assert "test_skipped_rows.py" in caught.value.location
    return caught.value.message


def test_the_first_row_outside_is_named() -> None:
    def kernel(x, start):
        tile = nl.ndarray((6, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap([[10, 6], [1, 8]], 20, scalar_offset=nl.load(start)))
        return output(tile)

    x = numbers(1, SHAPE)
    for index in (-2, 0, 4):  # addresses count: two rows back there is still room
        want = x[2 + index : 8 + index, :8]
        assert np.array_equal(made(kernel)(x, at(index)), want)
    assert refused(kernel, x, at(6)) == (
        "run-time index 6 is outside [-2, 5) of dimension 0 of x (12x10 float32 in shared_hbm): "
        "row 4 of the transfer's 6 would be elements [120, 128) of src, which has 120"
    )
    assert "row 0 of the transfer's 6" in refused(kernel, x, at(-3))


def test_a_window_outside_is_named() -> None:
    def kernel(x, start):
        tile = nl.ndarray((5, 3, 7), dtype=x.dtype, buffer=nl.sbuf)
        register = nisa.register_alloc(nl.load(start))
        nisa.dma_copy(dst=tile, src=x[:, nl.ds(register, 3), :])
        return output(tile)

    message = refused(kernel, numbers(1, (5, 6, 7)), at(4))
    assert "run-time index 4 is outside [0, 4) of dimension 1 of x" in message
    assert "row 2 of the transfer's 15 would leave dimension 1 of src, which has 6" in message


def test_the_first_row_of_an_index_outside_is_named() -> None:
    def kernel(x, index):
        tile = nl.ndarray((2, 3, 8), dtype=x.dtype, buffer=nl.sbuf)
        rows = nl.load(index)
        nisa.dma_copy(dst=tile, src=x.ap([[8, 2], [8, 3], [1, 8]], vector_offset=rows))
        return output(tile)

    x = numbers(1, (10, 8))
    assert np.array_equal(made(kernel)(x, np.array([[0], [7]], np.int32))[1], x[7:10])
    assert refused(kernel, x, np.array([[0], [8]], np.int32)) == (
        "vector offset 8 (partition 1) chooses 3 rows of x (10x8 float32 in shared_hbm), of which "
        "row 2 would be elements [80, 88) of 80"
    )
    assert "vector offset 10 (partition 0) is outside [0, 10) of x" in refused(
        kernel, x, np.array([[10], [0]], np.int32)
    )
