"""Index expressions and masks against NumPy's index arrays."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_dist.compat.beta1.index import arange, mgrid
from nki_dist.errors import NkiValidationError

OPERATORS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
AXES = {
    "p": (arange(7)[:, None], np.arange(7)[:, None]),
    "f": (arange(2, 13, 3)[None, :], np.arange(2, 13, 3)[None, :]),
}


@st.composite
def expressions(draw, depth=3):
    """The same expression of index expressions and of arrays."""
    if depth == 0 or draw(st.booleans()):
        return AXES[draw(st.sampled_from(sorted(AXES)))]
    ours, theirs = draw(expressions(depth - 1))
    op = draw(st.sampled_from(["+", "-", "*", "rsub", "neg"]))
    n = draw(st.integers(1, 9))
    if op == "neg":
        return -ours, -theirs
    if op == "rsub":
        return n - ours, n - theirs
    if op == "*":
        return ours * n, theirs * n
    other, their_other = draw(expressions(depth - 1))
    if op == "+":
        return ours + other, theirs + their_other
    return ours - other, theirs - their_other


@settings(derandomize=True, max_examples=150, deadline=None)
@given(expressions())
def test_expressions_are_numpys(pair):
    ours, theirs = pair
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(np.broadcast_to(ours.array(), ours.shape), theirs)
    assert ours.bounds() == (theirs.min(), theirs.max())


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.lists(st.tuples(expressions(), st.sampled_from(OPERATORS)), min_size=1, max_size=3))
def test_masks_are_numpys_boxes(compared):
    ours, theirs = None, np.ones((7, 4), bool)
    for (index, array), op in compared:
        mask = op(index, 6)
        ours = mask if ours is None else ours & mask
        theirs = theirs & op(array, 6)
    box = [along.nonzero()[0] for along in (theirs.any(1), theirs.any(0))]
    filled = theirs.all() or theirs[np.ix_(*box)].all()
    try:
        found = ours.over((7, 4)).box()
    except NkiValidationError as error:
        assert "isn't a box" in str(error)
        return
    kept = np.zeros((7, 4), bool)
    kept[tuple(slice(low, high) for low, high in found)] = True
    assert filled
    np.testing.assert_array_equal(kept, theirs)


@pytest.mark.parametrize(
    "made", [lambda i: i // 2, lambda i: i % 3, lambda i: i * i, lambda i: (i * 0 + 1) * i]
)
def test_what_is_not_affine_is_refused(made):
    with pytest.raises(NkiValidationError, match="allowed: sums, and products with ints") as caught:
        made(arange(8))
    assert caught.value.code == "index-kind"


def test_mgrid_is_dense_and_named():
    grid = mgrid[0:3, 1:5]
    dense = np.mgrid[0:3, 1:5]
    for ours, theirs in zip((grid.p, grid.x), dense):
        assert ours.shape == theirs.shape
        np.testing.assert_array_equal(np.broadcast_to(ours.array(), ours.shape), theirs)


@pytest.mark.parametrize("start, stop", [(3, 3), (5, 2)])
def test_empty_ranges_are_refused(start, stop):
    with pytest.raises(NkiValidationError, match="empty"):
        arange(start, stop)


def test_subscripts_only_add_axes():
    with pytest.raises(NkiValidationError, match="None for new ones"):
        arange(8)[2:4]


def test_python_cannot_branch():
    with pytest.raises(NkiValidationError, match="stands for many numbers"):
        bool(arange(4))
    with pytest.raises(NkiValidationError, match="differs from element to element"):
        bool(arange(4) < 2)
    assert bool(arange(4) < 9)
