"""Loops of Beta 1 kernels: what leaves them early, what isn't one, stores and names beside them."""

import inspect
import re

import numpy as np
import pytest

from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import CompileError, NkiValidationError, OutOfBoundsError
from tests.beta1.helpers import normal, run


def returning(loop, early):
    """A kernel that returns from inside a loop of three iterations: in the first, or the last."""

    def kernel(a):
        out = nl.ndarray((6, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in loop(3):
            nl.store(out[nl.ds(2 * i, 2), :], nl.load(a[nl.ds(2 * i, 2), :]))
            if early or i == 2:
                return out
        return out

    return kernel


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range])
def test_a_return_must_not_lose_iterations(loop):
    kernel = returning(loop, early=True)
    with pytest.raises(CompileError, match=r"after 1 of 3 iterations.*behind the loop") as caught:
        run(kernel, normal(6, 5))
    lines, first = inspect.getsourcelines(kernel)
    line = first + next(n for n, text in enumerate(lines) if "return out" in text)
    assert caught.value.location == f"{__file__}:{line}"
    assert caught.value.code == "beta1-return"


def test_a_return_of_the_last_iteration_loses_none():
    a = normal(6, 5)
    np.testing.assert_array_equal(run(returning(nl.affine_range, early=False), a), a)


def test_a_return_of_an_inner_loop_names_it():
    def kernel(a):
        for _ in nl.affine_range(1):
            for _ in nl.sequential_range(7):
                return nl.load(a)
        return None

    with pytest.raises(CompileError, match="after 1 of 7 iterations"):
        run(kernel, normal(6, 5))


def test_python_loops_may_be_left():
    def kernel(a):
        out = nl.ndarray((6, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(3):
            if i == 1:
                break
            nl.store(out, nl.load(a))
        for i in nl.static_range(3):
            if i == 1:
                return out
        return None

    a = normal(6, 5)
    np.testing.assert_array_equal(run(kernel, a), a)


def test_an_exception_leaves_a_loop_as_it_is():
    def inner(a):
        for _ in nl.affine_range(3):
            return nl.load(a)[9]
        return None

    with pytest.raises(OutOfBoundsError, match="index 9 on dimension 0 of size 6"):
        run(inner, normal(6, 5))


def test_an_index_expression_is_no_loop():
    def kernel(a):
        for i in nl.arange(4):
            nl.load(a[i])

    with pytest.raises(NkiValidationError, match=r"write `for i in nl\.affine_range\(n\)`"):
        run(kernel, normal(6, 5))


@pytest.mark.parametrize(
    "shape, advice",
    [
        ((6, 3), r"write value\[0:6, 0:3\]$"),
        ((6, 9), r"write dst\[0:6, 0:5\]$"),
        ((4, 9), r"write dst\[0:4, 0:5\] and value\[0:4, 0:5\]$"),
        ((2, 6, 3), "say what part of it is meant$"),
    ],
)
def test_a_store_of_another_shape_says_what_to_write(shape, advice):
    def kernel(a):
        out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        return out

    with pytest.raises(NkiValidationError, match=r"nl\.store of a tile of shape \(6, 5\)") as found:
        run(kernel, normal(6, 5))
    assert re.search(advice, found.value.message)


def test_stores_of_as_many_elements_and_of_repeated_ones_are_taken():
    def kernel(a):
        out = nl.ndarray((2, 3, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        wide = nl.ndarray((6, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        nl.store(out, tile)
        nl.store(wide, tile[:, 2:3])
        return out, wide

    a = normal(6, 5)
    out, wide = run(kernel, a)
    np.testing.assert_array_equal(out, a.reshape(2, 3, 5))
    np.testing.assert_array_equal(wide, np.repeat(a[:, 2:3], 4, 1))
