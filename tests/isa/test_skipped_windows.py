"""oob_mode of DMA where a window leaves its dimension: rows that stay inside are moved."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.isa.helpers import numbers, output
from tests.isa.skipping import SKIP, at, made


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
