"""Shape arithmetic against NumPy, which knows when a reshape needs a copy."""

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_dist.ops.place import follow, reshaped_strides
from nki_dist.program.storage import contiguous_strides

FIXED = settings(max_examples=150, derandomize=True, deadline=None)


def factors(draw, total):
    """A random way to write `total` as a product."""
    shape = []
    while total > 1 and len(shape) < 4:
        part = draw(st.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
        shape.append(part)
        total //= part
    return (*shape, total)


@st.composite
def views(draw):
    """A random view of a contiguous array: sliced, stepped and permuted."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    a = np.arange(prod(shape)).reshape(shape)
    for dim, n in enumerate(shape):
        if draw(st.booleans()):
            low = draw(st.integers(0, n - 1))
            key = slice(low, draw(st.integers(low + 1, n)), draw(st.integers(1, 2)))
            a = a[(slice(None),) * dim + (key,)]
    if draw(st.booleans()):
        a = a.transpose(draw(st.permutations(range(a.ndim))))
    return a, factors(draw, a.size)


@FIXED
@given(views())
def test_reshape_needs_a_copy_exactly_when_numpy_says_so(case):
    a, shape = case
    strides = tuple(s // a.itemsize for s in a.strides)
    found = reshaped_strides(a.shape, strides, shape, 1)
    expected = a.reshape(shape)
    if not np.shares_memory(a, expected):
        assert found is None
        return
    assert found is not None
    bytes_ = tuple(s * a.itemsize for s in found)
    got = np.lib.stride_tricks.as_strided(a, shape, bytes_)
    np.testing.assert_array_equal(got, expected)


def test_a_dimension_of_size_1_has_the_stride_of_contiguous_elements():
    assert reshaped_strides((4,), (10,), (1, 4, 1), 1) == (40, 10, 1)


@FIXED
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_contiguous_strides_are_numpys(shape):
    a = np.empty(tuple(shape), np.uint8)
    assert contiguous_strides(tuple(shape)) == a.strides
    assert follow(a.shape, a.strides, 1)


@FIXED
@given(views())
def test_contiguity_is_numpys(case):
    a, _ = case
    strides = tuple(s // a.itemsize for s in a.strides)
    assert follow(a.shape, strides, 1) == a.flags.c_contiguous
