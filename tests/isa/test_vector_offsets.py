"""Index tiles: one column, several, `.indirect()` views, and what bounds a scalar offset."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from tests.isa.helpers import numbers, output, run

BF16 = ml_dtypes.bfloat16


def _indices(shape: tuple[int, ...], limit: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, limit, shape).astype(np.uint32)


def test_dma_transpose_takes_several_columns_of_indices() -> None:
    table, index = numbers(1, (300, 24), BF16), _indices((128, 2), 300)

    def kernel(table, index):
        dst = nl.ndarray((24, 240), dtype=table.dtype, buffer=nl.sbuf)
        source = table.ap([[24, 240], [1, 24]], vector_offset=nl.load(index), indirect_dim=0)
        nisa.dma_transpose(dst, source, axes=(1, 0))
        return output(dst)

    got = run(kernel, table, index)
    np.testing.assert_array_equal(got, table[index.T.reshape(-1)[:240]].T)
    with pytest.raises(NkiValidationError, match="128 if there is more than one column"):
        run(kernel, table, index[:112])


def test_dma_copy_takes_one_column() -> None:
    table = numbers(2, (300, 7))

    def kernel(table, index):
        rows = nl.load(index)
        dst = nl.ndarray((rows.size, 7), dtype=table.dtype, buffer=nl.sbuf)
        source = table.ap([[7, rows.size], [1, 7]], vector_offset=rows, indirect_dim=0)
        nisa.dma_copy(dst, source)
        return output(dst)

    index = _indices((33, 1), 300)
    np.testing.assert_array_equal(run(kernel, table, index), table[index[:, 0]])
    with pytest.raises(NkiValidationError, match=r"src has shape \(33, 2\); allowed: \(66, 1\)"):
        run(kernel, table, _indices((33, 2), 300))


def test_dma_compute_takes_one_column() -> None:
    def kernel(table, index, data):
        tile = nl.load(data)
        rows = table.ap([[7, 33], [1, 7]], vector_offset=nl.load(index), indirect_dim=0)
        nisa.dma_compute(tile, [rows, tile], nl.add)
        return output(tile)

    table, data = numbers(3, (300, 7)), numbers(4, (33, 7))
    index = _indices((33, 1), 300)
    want = table[index[:, 0]] + data
    np.testing.assert_array_equal(run(kernel, table, index, data), want)
    with pytest.raises(NkiValidationError, match=r"srcs\[0\] has shape \(33, 2\)"):
        run(kernel, table, _indices((33, 2), 300), data)
    with pytest.raises(NkiValidationError, match=r"srcs\[0\] has 33 rows, its vector offset 32"):
        run(kernel, table, _indices((32, 1), 300), data)


def test_vector_select_takes_one_column() -> None:
    def kernel(table, index):
        rows = nl.load(index)
        dst = nl.ndarray((33, 7), dtype=table.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst, table.vector_select(0, rows))
        return output(dst)

    table, index = numbers(5, (300, 7)), _indices((33, 1), 300)
    np.testing.assert_array_equal(run(kernel, table, index), table[index[:, 0]])
    with pytest.raises(NkiValidationError, match="one index per row"):
        run(kernel, table, _indices((33, 2), 300))


def test_an_index_tile_has_two_dimensions() -> None:
    def kernel(table, index):
        table.ap([[7, 30], [1, 7]], vector_offset=nl.load(index), indirect_dim=0)

    with pytest.raises(NkiValidationError, match=r"\(P, N\) for dma_transpose; got \(30, 2, 2\)"):
        run(kernel, numbers(6, (300, 7)), _indices((30, 2, 2), 300))


@pytest.mark.parametrize("side", ["dst", "src"])
def test_dma_copy_refuses_indirect_views(side: str) -> None:
    def kernel(a, index):
        tile, other = nl.load(a), nl.ndarray((32, 3), dtype=a.dtype, buffer=nl.sbuf)
        chosen = tile.indirect(nl.load(index), 3)
        nisa.dma_copy(*((chosen, other) if side == "dst" else (other, chosen)))

    with pytest.raises(NkiValidationError, match=rf"{side} is an .indirect\(\) view"):
        run(kernel, numbers(7, (32, 9)), np.zeros((32, 1), np.uint32), platform="trn3")


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_scalar_offset_into_hbm_is_bounded_by_the_storage(dim) -> None:
    """Of an inner dimension, too, and of one element, whose stride is its neighbour's."""
    x = numbers(2, (4, 5, 1, 6))

    def kernel(x, at):
        register = nisa.register_alloc(nl.load(at))
        tile = nl.ndarray((1, 6), dtype=x.dtype, buffer=nl.sbuf)
        source = x.ap([[6, 1], [1, 6]], scalar_offset=register, indirect_dim=dim)
        nisa.dma_copy(dst=tile, src=source)
        return output(tile)

    rows = {0: x[:, 0, 0], 1: x.reshape(20, 6), 2: x.reshape(20, 6)}[dim]
    for at in (0, len(rows) - 1):
        assert np.array_equal(run(kernel, x, np.array([[at]], np.int32))[0], rows[at])
    for at in (-1, len(rows)):
        with pytest.raises(OutOfBoundsError, match=rf"index {at} is outside \[0, {len(rows)}\)"):
            run(kernel, x, np.array([[at]], np.int32))


def test_rows_scattered_by_slot_into_a_cache_of_blocks() -> None:
    """Slots count through all blocks, though dimension 1 is one block; nkilib's KV cache does so.

    The rows cross a block's end. A slot of all ones is skipped; of the last one, the row beyond.
    """
    cache, new = numbers(2, (6, 4, 8)), numbers(3, (2, 8))

    def kernel(cache, new, at):
        slot = nl.load(at)
        rows = nl.load(new)
        target = cache.ap([[8, 2], [1, 8]], scalar_offset=slot, indirect_dim=1)
        nisa.dma_copy(dst=target, src=rows, oob_mode=nisa.oob_mode.skip)
        return cache

    for slot in (0, 7, 22, 23, 2**32 - 1):
        want = cache.reshape(24, 8).copy()
        room = want[slot : slot + 2]
        room[...] = new[: len(room)]
        found = run(kernel, cache.copy(), new, np.array([[slot]], np.uint32))
        assert np.array_equal(found.reshape(24, 8), want), slot


def test_a_scalar_offset_on_chip_is_bounded_by_its_dimension() -> None:
    x = numbers(2, (4, 30))

    def kernel(x, at):
        register = nisa.register_alloc(nl.load(at))
        tile = nl.load(x).reshape((4, 5, 6))
        out = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.sbuf)
        source = tile.ap([[30, 4], [1, 6]], scalar_offset=register, indirect_dim=1)
        nisa.tensor_copy(dst=out, src=source)
        return output(out)

    assert np.array_equal(run(kernel, x, np.array([[4]], np.int32)), x[:, 24:])
    with pytest.raises(OutOfBoundsError, match=r"index 5 is outside \[0, 5\)"):
        run(kernel, x, np.array([[5]], np.int32))
