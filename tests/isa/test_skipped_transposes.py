"""oob_mode of transposes, and of transfers with several rows for each index."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.isa.helpers import numbers, output
from tests.isa.skipping import SKIP, Pattern, addresses, at, made, rows

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
