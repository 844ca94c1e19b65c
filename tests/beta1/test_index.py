"""Index expressions and masks against NumPy's index arrays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_dist.compat.beta1.index import arange, mgrid
from nki_dist.errors import NkiValidationError

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
@given(
    expressions(), expressions(), st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), st.booleans()
)
def test_masks_are_numpys_and_boxes_cover_them(a, b, op, both):
    ours, theirs = eval(f"a[0] {op} 6"), eval(f"a[1] {op} 6")
    join = "&" if both else "|"
    ours, theirs = eval(f"ours {join} (b[0] >= 3)"), eval(f"theirs {join} (b[1] >= 3)")
    theirs = np.broadcast_to(theirs, ours.shape)
    np.testing.assert_array_equal(np.broadcast_to(ours.array(), ours.shape), theirs)
    covered = np.zeros(ours.shape, int)
    for box in ours.boxes():
        covered[tuple(slice(lo, hi) for lo, hi in box)] += 1
    np.testing.assert_array_equal(covered, theirs)
    np.testing.assert_array_equal(np.broadcast_to((~ours).array(), ours.shape), ~theirs)
    one = ours.box()
    if one is not None:
        assert len(ours.boxes()) <= 1


@pytest.mark.parametrize(
    "made",
    [
        lambda i, j: (i * 4 + 2) // 2,
        lambda i, j: (i + 16) % 32,
        lambda i, j: (i * 12 + j) // 12,
        lambda i, j: (i * 0 + 3) * j,
    ],
)
def test_what_goes_in_equal_steps_is_numpys(made):
    ours = made(arange(7)[:, None], arange(5)[None, :])
    theirs = made(np.arange(7)[:, None], np.arange(5)[None, :])
    np.testing.assert_array_equal(np.broadcast_to(ours.array(), ours.shape), theirs)


@pytest.mark.parametrize("made", [lambda i: i // 2, lambda i: i % 3, lambda i: i * i])
def test_what_does_not_is_refused(made):
    with pytest.raises(NkiValidationError, match="don't go in equal steps") as caught:
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
