"""oob_mode of DMA row by row, against a reference that looks at every element by itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from tests.isa.helpers import numbers, output

SKIP = nisa.oob_mode.skip
Pattern = list[list[int]]


def made(kernel: Callable[..., Any], platform: str = "trn2") -> Any:
    """The kernel as a function of arrays; compiled once."""
    return nki.simulate(nki.jit(kernel, platform_target=platform))


def at(index: int) -> np.ndarray:
    return np.array([[index]], np.int32)


def addresses(pattern: Pattern, offset: int = 0) -> np.ndarray:
    """Address of every element, in order."""
    every = product(*(range(n) for _, n in pattern))
    return np.array([offset + sum(k * s for k, (s, _) in zip(ks, pattern)) for ks in every])


def rows(*sides: tuple[np.ndarray, int]) -> list[slice]:
    """The elements cut into rows; sides are (addresses, elements of the last dimension)."""
    cuts, count = [0], len(sides[0][0])
    for n in range(1, count):
        if any(n % last == 0 or a[n] != a[n - 1] + 1 for a, last in sides):
            cuts.append(n)
    return [slice(low, high) for low, high in zip(cuts, [*cuts[1:], count])]


def test_nearby_rows_of_the_reference():
    flat = addresses([[10, 3], [1, 4]], 2)
    assert flat.tolist() == [2, 3, 4, 5, 12, 13, 14, 15, 22, 23, 24, 25]
    found = rows((flat, 4), (np.arange(12), 6))
    assert [(r.start, r.stop) for r in found] == [(0, 4), (4, 6), (6, 8), (8, 12)]


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


# ---- windows stay in their dimension ------------------------------------------------------------


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_window_keeps_to_its_dimension(dim: int) -> None:
    """A row that would run into the next index of an outer dimension is outside."""
    x, window = numbers(1, (5, 6, 7)), 3

    def kernel(x, start):
        key = [slice(0, n - 1) for n in x.shape]
        key[dim] = nl.ds(nisa.register_alloc(nl.load(start)), window)
        source = x[tuple(key)]
        tile = nl.ndarray((source.shape[0], *source.shape[1:]), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        nisa.dma_copy(dst=tile, src=source, oob_mode=SKIP)
        return output(tile)

    run = made(kernel)
    for index in range(-4, 9):
        shape = [n - 1 for n in x.shape]
        shape[dim] = window
        want = np.full(shape, 7, np.float32)
        for place in product(*(range(n) for n in shape[:-1])):
            first = [*place, 0]
            ends = index + first[dim], index + (first[dim] if dim < 2 else window - 1)
            if min(ends) >= 0 and max(ends) < x.shape[dim]:
                first[dim] += index
                want[place] = x[tuple(first[:2])][first[2] : first[2] + shape[2]]
        assert np.array_equal(run(x, at(index)), want), index


def test_views_of_a_window_keep_to_its_dimension() -> None:
    """Slices and reshapes after nl.ds move the pattern, not the dimension's ends."""
    x = numbers(1, (4, 6, 5))

    def kernel(x, start):
        source = x[:, nl.ds(nisa.register_alloc(nl.load(start)), 4), :]
        source = source[1:4, 1:4, :].reshape_dim(1, (3, 1))
        tile = nl.ndarray((3, 3, 1, 5), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        nisa.dma_copy(dst=tile, src=source, oob_mode=SKIP)
        return output(tile)

    run = made(kernel)
    for index in range(-6, 9):
        want = np.full((3, 3, 1, 5), 7, np.float32)
        for a, b in product(range(3), range(3)):
            if 0 <= index + 1 + b < 6:
                want[a, b, 0] = x[1 + a, index + 1 + b]
        assert np.array_equal(run(x, at(index)), want), index


@pytest.mark.parametrize("kind", ["select", "register"])
def test_an_index_is_inside_or_not(kind: str) -> None:
    x = numbers(1, (4, 6, 5))

    def kernel(x, start):
        register = nisa.register_alloc(nl.load(start))
        source = x.select(1, register) if kind == "select" else x[:, register, :]
        tile = nl.ndarray((4, 5), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        nisa.dma_copy(dst=tile, src=source, oob_mode=SKIP)
        return output(tile)

    run = made(kernel)
    for index in range(-2, 9):
        want = x[:, index] if 0 <= index < 6 else np.full((4, 5), 7)
        assert np.array_equal(run(x, at(index)), want), index


@pytest.mark.parametrize("side", ["dst", "src"])
def test_rows_of_a_tile_keep_to_their_partition(side: str) -> None:
    x, old = numbers(1, (4, 3, 5)), numbers(2, (4, 6, 5))

    def kernel(x, old, start):
        tile, other = nl.load(old), nl.load(x)
        there = tile.ap([[30, 4], [5, 3], [1, 5]], scalar_offset=nl.load(start), indirect_dim=1)
        pair = (there, other) if side == "dst" else (other, there)
        nisa.dma_copy(*pair, oob_mode=SKIP)
        return output(tile if side == "dst" else other)

    run = made(kernel)
    for index in range(-4, 9):
        want = (old if side == "dst" else x).copy()
        for k in range(3):
            if 0 <= index + k < 6:
                if side == "dst":
                    want[:, index + k] = x[:, k]
                else:
                    want[:, k] = old[:, index + k]
        assert np.array_equal(run(x, old, at(index)), want), index


def test_windows_in_partitions_from_the_midst_of_a_tile() -> None:
    x = numbers(1, (4, 6, 5))

    def kernel(x, start):
        tile, register = nl.load(x), nisa.register_alloc(nl.load(start))
        outs = []
        for view in (tile[2:3], tile[1:4], tile[2:3, 1:5]):
            for window in (view[:, nl.ds(register, 3), :], view[:, :, nl.ds(register, 3)]):
                out = nl.ndarray(window.shape, dtype=x.dtype, buffer=nl.sbuf)
                nisa.memset(dst=out, value=7)
                nisa.dma_copy(dst=out, src=window, oob_mode=SKIP)
                outs.append(output(out))
        return tuple(outs)

    run = made(kernel)
    for index in range(-4, 9):
        got = iter(run(x, at(index)))
        for view in (x[2:3], x[1:4], x[2:3, 1:5]):
            want = np.full((len(view), 3, 5), 7, np.float32)
            for k in range(3):
                if 0 <= index + k < view.shape[1]:
                    want[:, k] = view[:, index + k]
            assert np.array_equal(next(got), want), index
            want = np.full((*view.shape[:2], 3), 7, np.float32)
            if 0 <= index <= 2:
                want[...] = view[:, :, index : index + 3]
            assert np.array_equal(next(got), want), index


def test_a_row_longer_than_the_window_s_dimension() -> None:
    """A window as wide as its dimension may be flattened; rows then go through several."""
    x, old = numbers(1, (4, 3, 5)), numbers(2, (3, 30))

    def kernel(x, old, m, n):
        source = x[:, nl.ds(nisa.register_alloc(nl.load(n)), 3), :].reshape((2, 30))
        target = old.ap([[30, 2], [1, 30]], scalar_offset=nl.load(m))
        nisa.dma_copy(dst=target, src=source, oob_mode=SKIP)
        return old

    run = made(kernel)
    for m, n in product((-1, 0, 2), (-1, 0, 1)):
        want = old.copy()
        for k in range(2):
            if n == 0 and 0 <= m + k < 3:
                want[m + k] = x.reshape(2, 30)[k]
        assert np.array_equal(run(x, old.copy(), at(m), at(n)), want), (m, n)


# ---- transposes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_transpose_skips_columns(dtype: Any) -> None:
    x = numbers(1, (20, 8), dtype)

    def kernel(x, start):
        tile = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        source = x.ap([[8, 16], [1, 8]], scalar_offset=nl.load(start))
        nisa.dma_transpose(dst=tile, src=source, oob_mode=SKIP)
        return output(tile)

    run = made(kernel)
    for index in (-20, -16, -3, 0, 4, 9, 19, 20):
        want = np.full((8, 16), 7, dtype)
        for k in range(16):
            if 0 <= index + k < 20:
                want[:, k] = x[index + k]
        assert np.array_equal(run(x, at(index)), want), index


def test_a_gathered_transpose_into_a_moving_tile() -> None:
    """Indices and the place in dst can both be outside."""
    x = numbers(1, (20, 4), ml_dtypes.bfloat16)
    index = np.random.default_rng(2).integers(0, 26, (16, 1)).astype(np.uint32)

    def kernel(x, index, start):
        tile = nl.ndarray((4, 24), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        source = x.ap([[4, 16], [1, 4]], vector_offset=nl.load(index))
        register = nisa.register_alloc(nl.load(start))
        target = tile.ap([[24, 4], [1, 16]], scalar_offset=register, indirect_dim=1)
        nisa.dma_transpose(dst=target, src=source, oob_mode=SKIP)
        return output(tile)

    run = made(kernel)
    for start in (-17, -3, 0, 8, 12, 23):
        want = np.full((4, 24), 7, x.dtype)
        for k, row in enumerate(index[:, 0]):
            if row < 20 and 0 <= start + k < 24:
                want[:, start + k] = x[row]
        assert np.array_equal(run(x, index, at(start)), want), start


# ---- several rows for each index ----------------------------------------------------------------


@pytest.mark.parametrize("form", ["gather", "scatter", "add gathered", "add scattered"])
@pytest.mark.parametrize("each", [[[8, 3], [1, 8]], [[4, 5], [1, 4]], [[8, 2], [2, 4]]])
def test_rows_of_an_index_skip_one_by_one(form: str, each: Pattern) -> None:
    table = numbers(1, (10, 8))
    index = np.array([[0], [9], [3], [8], [10], [-1], [2**31 - 1], [9]], np.int32)
    flat = addresses(each)
    data = numbers(2, (8, len(flat)))

    def kernel(table, data, index):
        tile, rows = nl.load(data), nl.load(index)
        chosen = table.ap([[8, 8], *each], vector_offset=rows, indirect_dim=0)
        if form == "gather":
            nisa.dma_copy(dst=tile, src=chosen, oob_mode=SKIP)
        elif form == "scatter":
            nisa.dma_copy(dst=chosen, src=tile, oob_mode=SKIP)
        elif form == "add gathered":
            nisa.dma_compute(tile, [chosen, tile], nl.add, oob_mode=SKIP)
        else:
            nisa.dma_compute(chosen, [chosen, tile], nl.add, oob_mode=SKIP)
        return table if form in ("scatter", "add scattered") else output(tile)

    want_table, want = table.reshape(-1).copy(), data.copy()
    for n, row in enumerate(index[:, 0].astype(np.int64)):
        for piece in rows((flat, each[-1][1])):
            here = row * 8 + flat[piece]
            if not (0 <= row < 10 and (here < 80).all()):
                continue
            if form == "gather":
                want[n, piece] = table.reshape(-1)[here]
            elif form == "scatter":
                want_table[here] = data[n, piece]
            elif form == "add gathered":
                want[n, piece] += table.reshape(-1)[here]
            else:
                want_table[here] += data[n, piece]
    got = made(kernel)(table.copy(), data, index)
    stored = form in ("scatter", "add scattered")
    assert np.array_equal(got, want_table.reshape(10, 8) if stored else want)


@pytest.mark.parametrize("rows", [5, 6])
@pytest.mark.parametrize("each", [[[4, 2], [1, 4]], [[1, 8]]])
def test_rows_added_to_rows_that_overlap(rows: int, each: Pattern) -> None:
    """Two indices, two rows each: the row they share receives both additions.

    Of 6 rows, the last index would partly lie outside; of the first 5, none.
    """
    table, data = numbers(1, (6, 4)), numbers(2, (2, 8))

    def kernel(table, data, index):
        indices = nl.load(index)
        chosen = table[0:rows].ap([[4, 2], *each], vector_offset=indices, indirect_dim=0)
        nisa.dma_compute(chosen, [chosen, nl.load(data)], nl.add, oob_mode=SKIP)
        return table

    got = made(kernel)(table.copy(), data, np.array([[1], [2]], np.int32))
    want = table.copy()
    want[1:3] += data[0].reshape(2, 4)
    want[2:4] += data[1].reshape(2, 4)
    assert np.array_equal(got, want)


def test_a_gathered_transpose_of_rows_in_several_parts() -> None:
    x = numbers(1, (20, 4), ml_dtypes.bfloat16)
    index = np.arange(12, 28, dtype=np.uint32)[:, None]

    def kernel(x, index):
        tile = nl.ndarray((4, 1, 3, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=7)
        source = x.ap([[4, 16], [12, 1], [4, 3], [1, 4]], vector_offset=nl.load(index))
        nisa.dma_transpose(dst=tile, src=source, oob_mode=SKIP)
        return output(tile)

    want = np.full((4, 1, 3, 16), 7, x.dtype)
    for k, row in enumerate(index[:, 0]):
        for part in range(3):
            if row < 20 and row + part < 20:
                want[:, 0, part, k] = x[row + part]
    assert np.array_equal(made(kernel)(x, index), want)


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
        "row 4 of the transfer's 6 would be elements [120, 128) of src, which has 120; "
        "oob_mode.skip moves the rows that are inside and drops such rows"
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
        "row 2 would be elements [80, 88) of 80; oob_mode.skip moves the rows that are inside and "
        "drops such rows"
    )
    assert "vector offset 10 (partition 0) is outside [0, 10) of x" in refused(
        kernel, x, np.array([[10], [0]], np.int32)
    )
