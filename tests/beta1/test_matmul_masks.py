"""Masks of matmuls: the contraction, and free axes told apart by size or by index expression."""

import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import NkiError, NkiValidationError
from tests.beta1.helpers import close, normal, run

K, N = 37, 40


def product(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)


def masked(rows, columns, shared=False):
    """A kernel that adds a masked product to ones, and stores all of the sum."""

    def kernel(a, b):
        out = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.shared_hbm)
        k = nl.arange(K)[:, None]
        m = nl.arange(N)[None, :]
        n = m if shared else nl.arange(N)[None, :]
        x, y = nl.load(a), nl.load(b)
        total = nl.ones((N, N), dtype=nl.float32)
        mask = None
        for index, most in ((m, rows), (n, columns)):
            if most is not None:
                mask = index < most if mask is None else mask & (index < most)
        total += nisa.nc_matmul(x[k, m], y[k, n], mask=mask)
        nl.store(out, total)
        return out

    return kernel


@pytest.mark.parametrize("rows, columns", [(None, 17), (9, None), (9, 17)])
def test_operands_of_one_shape_are_told_apart_by_their_indices(rows, columns):
    a, b = normal(K, N), normal(K, N, seed=1)
    wanted = np.ones((N, N))
    wanted[:rows, :columns] += product(a, b)[:rows, :columns]
    close(run(masked(rows, columns), a, b), wanted, 1e-5)


def test_an_index_of_both_operands_bounds_both():
    a, b = normal(K, N), normal(K, N, seed=1)
    wanted = np.ones((N, N))
    wanted[:9, :9] += product(a, b)[:9, :9]
    close(run(masked(None, 9, shared=True), a, b), wanted, 1e-5)


def test_arithmetic_and_grids_keep_what_an_index_was_made_from():
    def kernel(a, b):
        out = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        left, right = nl.mgrid[0:K, 0:N], nl.mgrid[0:K, 0:N]
        total = nl.zeros((N, N), dtype=nl.float32)
        total += nisa.nc_matmul(
            x[left.p, left.x], y[right.p, right.x], mask=(3 * right.x + 2 < 35) & (left.p < 30)
        )
        nl.store(out, total)
        return out

    a, b = normal(K, N), normal(K, N, seed=1)
    wanted = np.zeros((N, N))
    wanted[:, :11] = product(a[:30], b[:30])[:, :11]
    close(run(kernel, a, b), wanted, 1e-5)


def test_an_index_of_neither_operand_is_refused():
    def kernel(a, b):
        x, y = nl.load(a), nl.load(b)
        nisa.nc_matmul(x, y, mask=nl.arange(N)[None, :] < 9)

    with pytest.raises(NkiValidationError, match="subscripted with the index that is compared"):
        run(kernel, normal(K, N), normal(K, N, seed=1))


def test_what_a_mask_left_out_of_a_product_was_never_written():
    def kernel(a, b):
        out = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.shared_hbm)
        k, m, n = nl.arange(K)[:, None], nl.arange(N)[None, :], nl.arange(N)[None, :]
        x, y = nl.load(a), nl.load(b)
        nl.store(out, nl.copy(nisa.nc_matmul(x[k, m], y[k, n], mask=n < 17)))
        return out

    with pytest.raises(NkiError, match="nobody wrote"):
        run(kernel, normal(K, N), normal(K, N, seed=1))


def by_subscripts(*subscripts):
    """A product whose moving operand is subscripted by one mask after the other."""

    def kernel(a, b):
        out = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.shared_hbm)
        k, n = nl.arange(K)[:, None], nl.arange(N)[None, :]
        moving = nl.load(b)[k, n]
        for subscript in subscripts:
            moving = moving[subscript(k, n)]
        total = nl.zeros((N, N), nl.float32, buffer=nl.psum)
        total += nisa.nc_matmul(nl.load(a)[k, n][k < 20], moving)
        nl.store(out, total)
        return out

    return kernel


def test_masks_behind_each_other_all_hold():
    a, b = normal(K, N), normal(K, N, seed=1)
    wanted = product(a[:20], b[:20])
    last = 1  # of a loop that has been unrolled: the comparison is Python's
    for kernel in (
        by_subscripts(lambda k, n: k < 20),
        by_subscripts(lambda k, n: k < 30, lambda k, n: k < 20),
        by_subscripts(lambda k, n: k < 20, lambda k, n: k < 30),
        by_subscripts(lambda k, n: k < 20, lambda k, n: last < 2, lambda k, n: np.True_),
    ):
        close(run(kernel, a, b), wanted, 1e-5)


@pytest.mark.parametrize(
    "subscripts, code",
    [
        ((lambda k, n: k < 9, lambda k, n: k >= 9), "mask-shape"),
        ((lambda k, n: k < 20, lambda k, n: False), "mask-shape"),
        ((lambda k, n: k < 20, lambda k, n: (k, n)), "mask-unsupported"),
    ],
)
def test_masks_that_leave_nothing_and_subscripts_behind_a_mask_are_refused(subscripts, code):
    with pytest.raises(NkiValidationError) as caught:
        run(by_subscripts(*subscripts), normal(K, N), normal(K, N, seed=1))
    assert caught.value.code == code
