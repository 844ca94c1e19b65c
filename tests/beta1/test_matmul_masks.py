"""Masks of matmuls: the contraction, and free axes told apart by size or by subscripts."""

from __future__ import annotations

import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import NkiError, NkiValidationError
from tests.beta1.helpers import close, normal, run

K, N = 37, 40


def product(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)


def test_a_mask_bounds_the_operand_that_has_its_size():
    def kernel(a, b):
        out = nl.ndarray((N, 12), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        total = nl.zeros((N, 12), dtype=nl.float32)
        k, n = nl.mgrid[0:K, 0:12]
        total += nisa.nc_matmul(x, y, mask=(3 * n + 2 < 29) & (k < 30))
        total += nisa.nc_matmul(x, y, mask=(nl.arange(N)[None, :] < 7))
        nl.store(out, total)
        return out

    a, b = normal(K, N), normal(K, 12, seed=1)
    wanted = np.zeros((N, 12))
    wanted[:, :9] = product(a[:30], b[:30])[:, :9]
    wanted[:7] += product(a, b)[:7]
    close(run(kernel, a, b), wanted, 1e-5)


def test_operands_of_one_size_arent_told_apart():
    def kernel(a, b):
        x, y = nl.load(a), nl.load(b)
        nisa.nc_matmul(x, y, mask=nl.arange(N)[None, :] < 9)

    with pytest.raises(NkiValidationError, match="where only one operand has its size"):
        run(kernel, normal(K, N), normal(K, N, seed=1))


def test_what_a_mask_left_out_of_a_product_was_never_written():
    def kernel(a, b):
        out = nl.ndarray((N, 12), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        nl.store(out, nl.copy(nisa.nc_matmul(x, y, mask=nl.arange(12)[None, :] < 9)))
        return out

    with pytest.raises(NkiError, match="nobody wrote"):
        run(kernel, normal(K, N), normal(K, 12, seed=1))


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
