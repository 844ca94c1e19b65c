"""Every view of NkiTensor against NumPy's view of the same numbers, and what must be refused."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.compiler.trace import Trace
from nki_dist.errors import NkiError, NkiValidationError, OutOfBoundsError
from nki_dist.isa.spec import tracing_with

FIXED = settings(max_examples=80, derandomize=True, deadline=None)


def elements(t: nl.NkiTensor) -> np.ndarray:
    """Number of the storage element behind every element of a static view."""
    numbers = np.arange(t.storage.nbytes // t.dtype.itemsize)
    strides = tuple(8 * s for s in t.strides)
    return np.lib.stride_tricks.as_strided(numbers[t.offset :], t.shape, strides)


def pair(shape, buffer=nl.shared_hbm, dtype=nl.float32):
    """A tensor and the NumPy array of its element numbers."""
    return nl.ndarray(shape, dtype, buffer=buffer), np.arange(prod(shape)).reshape(shape)


def same(t, a) -> None:
    assert t.shape == a.shape
    np.testing.assert_array_equal(elements(t), a)


def refused(message, error=NkiValidationError):
    return pytest.raises(error, match=message)


# ---- chains of random views ---------------------------------------------------------------------


def _index(draw, n):
    if draw(st.booleans()):
        return draw(st.integers(-n, n - 1))
    start = draw(st.integers(0, n - 1))
    return slice(start, draw(st.integers(start + 1, n + 2)), draw(st.integers(1, 3)))


def _step(draw, t, a):
    """One random view of both; dimension 0 is left alone on chip."""
    first = 1 if t.buffer.on_chip else 0
    dim = draw(st.integers(first, t.ndim - 1))
    kind = draw(
        st.sampled_from(["slice", "select", "permute", "split", "expand", "index", "merge"])
    )
    n = t.shape[dim]
    if kind == "slice":
        low = draw(st.integers(0, n - 1))
        high, step = draw(st.integers(low + 1, n)), draw(st.integers(1, 3))
        key = (slice(None),) * dim + (slice(low, high, step),)
        return t.slice(dim, low, high, step), a[key]
    if kind == "select" and t.ndim > first + 1 + (first == 0):
        at = draw(st.integers(0, n - 1))
        return t.select(dim, at), np.take(a, at, dim)
    if kind == "permute":
        order = (*range(first), *draw(st.permutations(range(first, t.ndim))))
        return t.permute(order), a.transpose(order)
    if kind == "split":
        part = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
        shape = (*t.shape[:dim], part, n // part, *t.shape[dim + 1 :])
        return t.reshape_dim(dim, (part, -1)), a.reshape(shape)
    if kind == "expand" and t.ndim < 5:
        return t.expand_dim(dim), np.expand_dims(a, dim)
    if kind == "index" and t.ndim > 2:
        key = (slice(None),) * first + (_index(draw, t.shape[first]), Ellipsis)
        return t[key], a[key]
    if kind == "merge" and dim + 1 < t.ndim and t.strides[dim] == n_stride(t, dim):
        shape = (*t.shape[:dim], n * t.shape[dim + 1], *t.shape[dim + 2 :])
        return t.flatten_dims(dim, dim + 1), a.reshape(shape)
    return t, a


def n_stride(t, dim):
    return t.strides[dim + 1] * t.shape[dim + 1]


@FIXED
@given(st.data())
@pytest.mark.parametrize("buffer", [nl.shared_hbm, nl.sbuf], ids=str)
def test_random_chains_of_views_address_what_numpy_addresses(buffer, data):
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=2, max_size=4)))
    with tracing_with(Trace("test", arch.get("trn2"))):
        t, a = pair(shape, buffer)
        for _ in range(data.draw(st.integers(1, 6))):
            t, a = _step(data.draw, t, a)
            same(t, a)


# ---- one test per method ------------------------------------------------------------------------


def test_indexing_on_hbm_drops_dimensions_but_one(trace):
    t, a = pair((3, 5, 7))
    same(t[1], a[1])
    same(t[-1, 1:4, ::2], a[-1, 1:4, ::2])
    same(t[..., 2], a[..., 2])
    same(t[1:2, ..., nl.ds(2, 3)], a[1:2, ..., 2:5])
    same(t[0, np.int64(2), nl.ds(np.int32(1), 4)], a[0, 2, 1:5])
    same(t[:, 2:99], a[:, 2:99])
    assert t[0, 1, 2].shape == (1,)
    assert t[()].shape == t.shape


def test_indexing_on_chip_keeps_the_partition_dimension(trace):
    t, a = pair((6, 5, 7), nl.sbuf)
    same(t[2], a[2:3])
    same(t[2, 3], a[2:3, 3])
    same(t[-1, 3, 4], a[-1:, 3, 4:5])
    same(t[1:5:2, :, 3], a[1:5:2, :, 3])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((slice(None, None, -1),), "slice step -1"),
        ((3,), "index 3 on dimension 0 of size 3"),
        ((0, -6), "index -6 on dimension 1 of size 5"),
        ((0, 0, 0, 0), "4 indices for 3 dimensions"),
        ((Ellipsis, 0, Ellipsis), "only one Ellipsis"),
        (("x",), "index 'x' of type str"),
        ((None,), "index None of type NoneType"),
        ((nl.ds(2, 2),), r"nl.ds\(2, 2\) on dimension 0 of size 3"),
        ((nl.ds(-1, 2),), r"nl.ds\(-1, 2\) on dimension 0"),
        ((nl.ds(0, -1),), r"nl.ds\(0, -1\) on dimension 0"),
    ],
)
def test_indexing_refuses(trace, key, message):
    t, _ = pair((3, 5, 7))
    with refused(message, NkiError):
        t[key]


def test_run_time_indices(trace):
    t, _ = pair((4, 6, 7))
    register = nisa.register_alloc()
    chosen = t[register]
    assert chosen.shape == (6, 7) and chosen.is_indirect() and chosen.dynamic.stride == 42
    window = t[:, nl.ds(register, 2)]
    assert window.shape == (4, 2, 7)
    assert (window.dynamic.stride, window.dynamic.limit) == (7, 5)
    with refused("can have only one"):
        chosen[register]
    with refused("can have only one"):
        t[register, nl.ds(register, 2)]
    with refused("a slice bound can't be a register; use nl.ds"):
        t[register:2]
    tile, _ = pair((4, 6), nl.sbuf)
    assert tile[:, register].shape == (4, 1)
    assert tile[nl.ds(register, 2), 1:3].dynamic.stride == 6
    with refused("run-time index on the partition dimension"):
        tile[register]


def test_iterating_and_len(trace):
    t, a = pair((3, 4))
    assert len(t) == 3
    for row, expected in zip(t, a, strict=True):
        same(row, expected)


def test_permute(trace):
    t, a = pair((3, 4, 5))
    same(t.permute((2, 0, 1)), a.transpose(2, 0, 1))
    same(t.permute([0, 2, 1]), a.transpose(0, 2, 1))


def test_broadcast(trace):
    t, a = pair((3, 1, 5), nl.sbuf)
    same(t.broadcast(1, 4), np.broadcast_to(a, (3, 4, 5)))
    assert t.broadcast(1, 4).strides[1] == 0
    h, b = pair((1, 5))
    same(h.broadcast(0, 4), np.broadcast_to(b, (4, 5)))


def test_expand_and_squeeze(trace):
    t, a = pair((3, 5), nl.sbuf)
    for dim in (1, 2):
        same(t.expand_dim(dim), np.expand_dims(a, dim))
        same(t.expand_dim(dim).squeeze_dim(dim), a)
    with refused(r"expand_dim\(4\)"):
        t.expand_dim(4)
    h, b = pair((1, 5))
    same(h.squeeze_dim(0), b[0])
    same(h.expand_dim(0), b[None])


def test_reshape_dim(trace):
    t, a = pair((4, 24), nl.psum)
    same(t.reshape_dim(1, (4, 6)), a.reshape(4, 4, 6))
    same(t.reshape_dim(1, (2, -1, 3)), a.reshape(4, 2, 4, 3))
    assert t.reshape_dim(0, (4,)).shape == (4, 24)
    with refused("can't be split"):
        t.reshape_dim(1, (5, -1))
    with refused("more than one -1"):
        t.reshape_dim(1, (-1, -1))


def test_flatten_dims(trace):
    t, a = pair((3, 2, 5, 4), nl.sbuf)
    same(t.flatten_dims(1, 2), a.reshape(3, 10, 4))
    same(t.flatten_dims(1, 3), a.reshape(3, 40))
    same(t[:, 1:2].flatten_dims(1, 3), a[:, 1:2].reshape(3, 20))
    with refused("empty range"):
        t.flatten_dims(2, 1)


def test_reshape(trace):
    t, a = pair((4, 4, 6), nl.sbuf)
    same(t.reshape((4, 24)), a.reshape(4, 24))
    same(t.reshape(shape=(4, 2, -1)), a.reshape(4, 2, 12))
    same(t.reshape(4, 3, 8), a.reshape(4, 3, 8))
    same(t[1:3].reshape((2, 24)), a[1:3].reshape(2, 24))
    same(t[:, 1:3].reshape((4, 12)), a[:, 1:3].reshape(4, 12))
    with refused("can't be reshaped to .* without a copy"):
        t.permute((0, 2, 1)).reshape((4, 24))
    h, b = pair((4, 6))
    same(h.reshape((8, 3)), b.reshape(8, 3))


def test_rearrange(trace):
    t, a = pair((3, 24), nl.sbuf)
    split = a.reshape(3, 4, 6)
    same(t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4}), split.transpose(0, 2, 1))
    same(t.rearrange(("b", ("h", "w")), ("b", "h", "w"), {"w": 6}), split)
    h, b = pair((2, 3, 4))
    same(h.rearrange(("a", "b", "c"), (("a", "b"), "c")), b.reshape(6, 4))
    same(h.rearrange(("a", "b", "c"), ("c", ("a", "b"))), b.transpose(2, 0, 1).reshape(4, 6))
    with refused("don't name the same dimensions once"):
        h.rearrange(("a", "b", "c"), ("a", "b"))
    with refused("are unknown"):
        t.rearrange(("b", ("h", "w")), ("b", "w", "h"))
    with refused("can't be split over"):
        t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 5})
    with refused("has 4 elements, the dimension 3"):
        h.rearrange(("a", "b", "c"), ("a", "b", "c"), {"b": 4})
    with refused("names 2 dimensions"):
        h.rearrange(("a", "b"), ("b", "a"))


def test_slice(trace):
    t, a = pair((5, 64), nl.sbuf)
    same(t.slice(1, 8, 24, 1), a[:, 8:24])
    same(t.slice(1, 3, 64, 7), a[:, 3:64:7])
    same(t.slice(dim=0, start=1, end=3), a[1:3])
    for bad in ((1, 8, 65), (1, -1, 4)):
        with refused(r"slice\(1, .* on dimension 1 of size 64 of t .* 0 to 63", OutOfBoundsError):
            t.slice(*bad)
    for bad in ((1, 8, 8), (1, 0, 4, 0)):
        with refused("needs start < end and step >= 1"):
            t.slice(*bad)
    with refused("dimension 2 of a tensor"):
        t.slice(2, 0, 1)


def test_select(trace):
    t, a = pair((5, 8, 6), nl.sbuf)
    same(t.select(1, 3), a[:, 3])
    same(t.select(0, 3), a[3:4])
    for bad in (8, -1):
        with refused(rf"select\(1, {bad}\) on dimension 1 of size 8 of t ", OutOfBoundsError):
            t.select(1, bad)
    index = nl.ndarray((1, 1), nl.int32)
    view = t.select(1, index)
    assert view.shape == (5, 6) and view.is_indirect() and not t.is_indirect()
    with refused("can have only one"):
        view.select(1, index)
    with refused("a register or a tile of one element"):
        t.select(1, nl.ndarray((1, 2), nl.int32))


def test_vector_select(trace):
    t, _ = pair((64, 8, 3))
    rows = nl.ndarray((20, 1), nl.int32)
    view = t.vector_select(0, rows)
    assert view.shape == (20, 8, 3) and view.is_indirect()
    assert view[:, 1:3].shape == (20, 2, 3)
    assert view.permute((0, 2, 1)).shape == (20, 3, 8)
    for act in (
        lambda: view.permute((1, 0, 2)),
        lambda: view.expand_dim(0),
        lambda: view.reshape((10, 16, 3)),
        lambda: view.flatten_dims(0, 1),
        lambda: view.reshape_dim(0, (10, 2)),
    ):
        with refused("which a vector offset indexes"):
            act()
    for act in (lambda: view[0], lambda: view[0:5], lambda: view.slice(0, 0, 5), lambda: view[::2]):
        with refused("addressed by a vector offset and can't be sliced"):
            act()
