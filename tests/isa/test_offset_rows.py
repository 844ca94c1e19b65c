"""Rows chosen from a pattern that begins inside its tensor: those behind its end are outside."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from tests.isa.helpers import numbers, output, run

BEGIN = 15  # elements: row r of the pattern is elements 15 + 4 r to 19 + 4 r of 24


def gathered(table, index):
    rows = table.ap([[4, 3], [1, 4]], offset=BEGIN, vector_offset=nl.load(index), indirect_dim=0)
    dst = nl.ndarray((3, 4), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst, rows)
    return output(dst)


def added(table, index):
    rows = table.ap([[4, 3], [1, 4]], offset=BEGIN, vector_offset=nl.load(index), indirect_dim=0)
    dst = nl.zeros((3, 4), dtype=table.dtype)
    nisa.dma_compute(dst, [rows, dst], nl.add)
    return output(dst)


def transposed(table, index):
    """Rows 16 wide from element 16 * 5 + 1 on."""
    rows = table.ap([[16, 32], [1, 16]], offset=81, vector_offset=nl.load(index), indirect_dim=0)
    dst = nl.ndarray((16, 32), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_transpose(dst, rows, axes=(1, 0))
    return output(dst)


@pytest.mark.parametrize("kernel", [gathered, added])
def test_rows_inside_are_moved_and_others_are_outside(kernel):
    table = numbers(1, (6, 4))
    flat = table.reshape(-1)
    index = np.array([[1], [0], [1]], np.int32)
    want = np.stack([flat[BEGIN + 4 * n :][:4] for n in index[:, 0]])
    np.testing.assert_array_equal(run(kernel, table, index), want)
    with pytest.raises(OutOfBoundsError, match="vector offset 2 "):
        run(kernel, table, np.array([[1], [2], [0]], np.int32))  # row 2 of 6, but not inside


def test_scattered_rows_too():
    def kernel(rows, index):
        out = nl.ndarray((6, 4), dtype=rows.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.zeros((6, 4), rows.dtype))
        place = out.ap([[4, 3], [1, 4]], offset=BEGIN, vector_offset=nl.load(index), indirect_dim=0)
        nisa.dma_copy(place, nl.load(rows))
        return out

    rows = numbers(2, (3, 4))
    with pytest.raises(OutOfBoundsError):
        run(kernel, rows, np.array([[0], [1], [5]], np.int32))


def test_transposed_rows_too():
    table = numbers(3, (40, 16), ml_dtypes.bfloat16)
    flat, index = table.reshape(-1), np.arange(32, dtype=np.uint32).reshape(32, 1)
    want = np.stack([flat[81 + 16 * n :][:16] for n in range(32)]).T
    np.testing.assert_array_equal(run(transposed, table, index), want)
    with pytest.raises(OutOfBoundsError):
        run(transposed, table, index + 3)  # 34 is a row of the table, but the last one begins at 33
