"""Masks: they are boxes, which shrink patterns."""

from __future__ import annotations

import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import NkiValidationError, UninitializedReadError
from tests.beta1.helpers import close, normal, run


def test_rows_beyond_the_tensor_are_left_out():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        rows, columns = a.shape
        for t in nl.affine_range((rows + 31) // 32):
            i = t * 32 + nl.arange(32)[:, None]
            j = nl.arange(columns)[None, :]
            tile = nl.load(a[i, j], mask=i < rows)
            nl.store(out[i, j], nl.exp(tile, mask=i < rows) * 3.0, mask=i < rows)
        return out

    a = normal(77, 13)
    close(run(kernel, a), np.exp(a.astype(np.float64)) * 3)


def test_both_bounds_and_a_bound_from_below():
    def kernel(a):
        out = nl.ndarray((9, 9), dtype=a.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:9, 0:9]
        nl.store(out, nl.zeros((9, 9), dtype=a.dtype))
        keep = (i >= 2) & (i < 7) & (j > 3)
        nl.store(out[i, j], nl.load(a[i, j], mask=keep), mask=keep)
        return out

    a = normal(9, 9)
    wanted = np.zeros_like(a)
    wanted[2:7, 4:] = a[2:7, 4:]
    close(run(kernel, a), wanted)


def test_assignment_keeps_what_the_mask_leaves_out():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:8, 0:10]
        tile = nl.full((8, 10), 5.0, dtype=a.dtype)
        tile[i, j] = nl.load(a[i, j], mask=j < 4)
        nl.store(out, tile)
        return out

    a = normal(8, 10)
    close(run(kernel, a), np.where(np.arange(10) < 4, a, 5))


def test_reductions_see_only_what_the_mask_keeps():
    def kernel(a):
        out = nl.ndarray((8, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        j = nl.arange(10)[None, :]
        nl.store(out, nl.sum(nl.load(a), axis=[1], mask=j < 7))
        return out

    a = normal(8, 10)
    close(run(kernel, a), a[:, :7].astype(np.float64).sum(1, keepdims=True))


def test_and_joins_as_documented():
    def kernel(a):
        out = nl.ndarray((6, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:8, 0:10]
        tile = nl.load(a)
        nl.store(out[i, j], tile, mask=(i < 6 and j < 5))
        return out

    a = normal(8, 10)
    close(run(kernel, a), a[:6, :5])


def test_masks_that_are_constant():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a, mask=True)
        nl.store(out, tile)
        nl.store(out, tile * 0.0, mask=False)
        return out

    a = normal(8, 10)
    close(run(kernel, a), a)


def refused(kernel, message):
    with pytest.raises(NkiValidationError, match=message) as caught:
        run(kernel, normal(8, 10))
    assert "test_masks.py:" in caught.value.location


def test_wrong_masks():
    def number(a):
        nl.load(a, mask=3)

    def rank(a):
        nl.load(a, mask=nl.arange(8)[:, None, None] < 4)

    def shape(a):
        nl.load(a, mask=nl.arange(5)[None, :] < 4)

    def joined(a):
        i, j = nl.mgrid[0:8, 0:10]
        rows, columns = i < 6, j < 5
        nl.load(a, mask=rows and columns)

    def branch(a):
        if nl.arange(8)[:, None] < 4:
            nl.load(a)

    refused(number, "mask=3; allowed: comparisons")
    refused(rank, "fewer dimensions")
    refused(shape, r"a mask of shape \(1, 5\)")
    refused(joined, "use &")
    refused(branch, "can't be used on a mask")


def test_matmuls_mask_the_contraction_and_their_operands():
    def kernel(a, b):
        out = nl.ndarray((2, 9, 11), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        k, m, n = nl.arange(20)[:, None], nl.arange(9)[None, :], nl.arange(11)[None, :]
        nl.store(out[0], nisa.nc_matmul(x, y, mask=k < 13))
        total = nl.zeros((9, 11), dtype=nl.float32, buffer=nl.sbuf)
        total[...] = nl.matmul(x[m < 5], y[n < 8], transpose_x=True)
        nl.store(out[1], total)
        return out

    a, b = normal(20, 9), normal(20, 11, seed=1)
    got = run(kernel, a, b)
    close(got[0], a[:13].T @ b[:13], 1e-5)
    wanted = a.T @ b
    wanted[5:], wanted[:, 8:] = 0, 0
    close(got[1], wanted, 1e-5)


def test_a_mask_beside_one_that_holds_nowhere_or_everywhere():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:8, 0:10]
        nl.store(out[i, j], nl.load(a), mask=(i < 6) | (j < 0))
        nl.store(out[i, j], nl.load(a), mask=(j >= 10) | (i >= 6) & True)
        nl.store(out[i, j], nl.load(a) * 0, mask=(i < 6) & False)
        return out

    a = normal(8, 10)
    close(run(kernel, a), a)


def test_masks_are_boxes():
    def triangle(a):
        i, j = nl.mgrid[0:8, 0:10]
        nl.store(a[i, j], nl.load(a), mask=i >= j)

    def reduction(a):
        nl.sum(nl.load(a), axis=1, mask=nl.arange(10)[None, :] != 3)

    def either(a):
        i, j = nl.mgrid[0:8, 0:10]
        nl.load(a, mask=(i < 3) | (j < 3))

    def other(a):
        nl.load(a, mask=~(nl.arange(8)[:, None] < 3))

    refused(triangle, "isn't a box: a comparison bounds more than one axis")
    refused(reduction, "isn't a box: a comparison bounds no range")
    refused(either, "comparisons joined by &")
    refused(other, "comparisons joined by &")


def test_masks_of_matmuls_bound_the_contraction_or_one_operand():
    def matmul(a):
        tile = nl.load(a)
        j = nl.arange(10)[None, :]
        nisa.nc_matmul(tile, tile, mask=j < 5)

    def operand(a):
        nl.exp(nl.load(a)[nl.arange(10)[None, :] < 5])

    def triangle(a):
        i, j = nl.mgrid[0:8, 0:10]
        tile = nl.load(a)
        nisa.nc_matmul(tile[i < j], tile)

    refused(matmul, "bound the contraction")
    refused(operand, "only for matmuls")
    refused(triangle, "isn't a box")


def test_an_operation_whose_mask_leaves_nothing_is_not_carried_out():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        carry = nl.zeros((7, 1), dtype=a.dtype, buffer=nl.sbuf)
        for j in nl.sequential_range(3):
            tile = nisa.tensor_tensor(nl.load(a[:, j * 4 : j * 4 + 4]), carry, np.add)
            nl.store(out[:, j * 4 : j * 4 + 4], tile)
            carry[...] = nl.copy(tile[:, 3], mask=j + 1 < 2)  # the third round adds the first's
        return out

    a = normal(7, 12)
    wanted = a.copy()
    wanted[:, 4:8] += a[:, 3:4]
    wanted[:, 8:12] += a[:, 3:4]
    close(run(kernel, a), wanted)


def test_a_product_whose_mask_leaves_nothing_adds_nothing():
    def kernel(a, b, c):
        out = nl.ndarray((5, 6), dtype=a.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((5, 6), dtype=nl.float32, buffer=nl.psum)
        left, right = nl.load(a), nl.load(b)
        for j in nl.affine_range(3):
            total += nl.matmul(left, right, transpose_x=True, mask=j < 2)
            total += nisa.nc_matmul(left, nl.load(c), mask=False)
        nl.store(out, nl.copy(total))
        return out

    a, b, c = normal(7, 5), normal(7, 6), normal(7, 6)
    close(run(kernel, a, b, c), 2 * (a.T @ b))


def test_what_a_mask_left_out_is_unwritten():
    def kernel(a):
        out = nl.ndarray((7, 1), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.sum(nl.load(a), axis=[1], mask=False))
        return out

    with pytest.raises(UninitializedReadError):
        run(kernel, normal(7, 12))


def test_a_selection_whose_mask_leaves_nothing_is_not_carried_out():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        below = nl.arange(8)[:, None] >= nl.arange(6)[None, :]
        for j in nl.affine_range(2):
            tile[...] = nisa.affine_select(below, tile, 9.0, mask=j < 0)
        nl.store(out, tile)
        return out

    a = normal(8, 6)
    close(run(kernel, a), a)
