"""What chains of matmuls multiply: operands as each matmul finds them, and side by side."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.runtime.sums import (
    PARTS,
    A,
    B,
    M,
    N,
    added,
    everywhere,
    numbers,
    output,
    product,
    stored,
    tile_of,
    tiles,
)

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")


@nki.jit
def reloaded(a, b):
    """The same two tiles of SBUF for every matmul."""
    left = nl.ndarray((128, M), dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, N), dtype=b.dtype, buffer=nl.sbuf)
    out, acc = output(M, N), tile_of()
    for n in range(PARTS):
        nisa.dma_copy(dst=left, src=a[n])
        nisa.dma_copy(dst=right, src=b[n])
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
    stored(out, acc)
    return out


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_operands_are_those_of_each_matmul(dtype) -> None:
    a, b = A.astype(dtype), B.astype(dtype)
    (out,) = everywhere(reloaded, a, b)
    assert out.tobytes() == added(a.astype(np.float32), b.astype(np.float32)).tobytes()


@nki.jit
def long(a, b):
    left, right = tiles(a), tiles(b)
    columns = b.shape[2]
    out, acc = output(M, columns), tile_of(columns)
    for _ in range(7):
        for n in range(PARTS):
            nisa.nc_matmul(dst=acc, stationary=left[n], moving=right[n])
    stored(out, acc)
    return out


def test_a_chain_has_4096_rows_at_most() -> None:
    few = B[:, :, :60]
    (out,) = everywhere(long, A, few)
    a, b = np.tile(A, (7, 1, 1)), np.tile(few, (7, 1, 1))
    assert out.tobytes() == added(a, b, 32).tobytes()


@nki.jit
def blocks(a, b, pieces, rewrite):
    """Tiles of output rows that have all of their moving operands in common.

    Each has the columns `start:stop:step` of a, those from 400 on from tiles of their own.
    """
    left, more, right = tiles(a[:, :, 0:400]), tiles(a[:, :, 400:800]), tiles(b)
    out = output(len(pieces), 100, b.shape[2])
    for piece in range(len(pieces)):
        start, stop, step = pieces[piece]
        acc = tile_of(b.shape[2], 100)
        for n in range(len(left)):
            if rewrite == (piece, n):
                for tile in left[:4]:
                    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            if start < 400:
                rows = left[n][:, start:stop:step]
            else:
                rows = more[n][:, start - 400 : stop - 400 : step]
            nisa.nc_matmul(dst=acc, stationary=rows, moving=right[n])
        stored(out[piece], acc)
    return out


@pytest.mark.parametrize("rewrite", [None, (2, 3), (0, 1)])
@pytest.mark.parametrize(
    "pieces",
    [
        [(0, 100, 1), (100, 200, 1), (200, 300, 1), (300, 400, 1), (400, 500, 1), (450, 550, 1)],
        [(0, 100, 1), (100, 200, 1), (200, 300, 1), (700, 800, 1)],
        [(300, 400, 1), (200, 300, 1), (100, 200, 1), (0, 100, 1)],
        [(0, 100, 1), (100, 200, 1), (300, 400, 1), (200, 300, 1), (200, 400, 2)],
        [(0, 100, 1), (0, 100, 1), (100, 300, 2), (0, 200, 2)],
    ],
)
def test_tiles_side_by_side_have_the_bits_of_single_ones(pieces, rewrite) -> None:
    a, b = numbers(8, 128, 800), numbers(8, 128, 500, seed=1)
    (out,) = everywhere(blocks, a, b, pieces, rewrite)
    for number, (start, stop, step) in enumerate(pieces):
        part = a[:, :, start:stop:step].copy()
        if rewrite is not None and start < 400:
            piece, n = rewrite
            for tile in range(4):  # those that had been multiplied by then weren't
                if (number, tile) >= (piece, n):
                    part[tile] *= 2
        assert out[number].tobytes() == product(part, b).tobytes()


@nki.jit
def again(a, b):
    """Single matmuls with operands in the same place, which are written anew now and then."""
    left = nl.ndarray((128, M), dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, N), dtype=b.dtype, buffer=nl.sbuf)
    out = output(4, M, N)
    for n in range(4):
        if n in (0, 2):
            nisa.dma_copy(dst=left, src=a[n])
        if n in (0, 3):
            nisa.dma_copy(dst=right, src=b[n])
        acc = tile_of()
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
        stored(out[n], acc)
    return out


def test_what_was_widened_is_forgotten_when_it_is_written() -> None:
    a, b = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    (out,) = everywhere(again, a, b)
    for n, (m, k) in enumerate([(0, 0), (0, 0), (2, 0), (2, 3)]):
        assert out[n].tobytes() == product(a[m], b[k]).tobytes()


def test_not_a_number_stays_in_its_row_and_column() -> None:
    a, b = A.copy(), B.copy()
    a[1, 5, 7], b[2, 9, 11] = np.nan, np.inf
    (out,) = everywhere(reloaded, a, b)
    clean = np.isfinite(out)
    assert not clean[7].any() and not clean[:, 11].any()
    clean[7], clean[:, 11] = True, True
    assert clean.all()


@nki.jit
def narrow(a, b):
    left, right = tiles(a), tiles(b)
    m, n = a.shape[2], b.shape[2]
    out, acc = output(m, n), tile_of(n, m)
    for part in range(PARTS):
        nisa.nc_matmul(dst=acc, stationary=left[part], moving=right[part])
    stored(out, acc)
    return out


@pytest.mark.parametrize(("m", "n"), [(1, N), (M, 1), (1, 1)])
def test_a_single_row_or_column(m, n) -> None:
    """BLAS would add those in an order that depends on strides."""
    a, b = A[:, :, 5 : 5 + m], B[:, :, 7 : 7 + n]
    (out,) = everywhere(narrow, a, b)
    wide = product(A[:, :, 5 : 5 + max(m, 2)], B[:, :, 7 : 7 + max(n, 2)])
    assert out.tobytes() == wide[:m, :n].tobytes()
