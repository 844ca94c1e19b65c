"""iota and affine_select against loops over their definition."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, rounded
from hypothesis import given, settings
from hypothesis import strategies as st

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16
STEP = st.integers(-50, 50)
PATTERN = st.lists(st.tuples(STEP, st.integers(1, 6)), min_size=1, max_size=4)
COMPARE = {
    nl.equal: np.equal,
    nl.not_equal: np.not_equal,
    nl.less: np.less,
    nl.less_equal: np.less_equal,
    nl.greater: np.greater,
    nl.greater_equal: np.greater_equal,
}


def affine(partitions, pattern, offset=0, multiplier=0):
    """The values as int64, one axis per dimension of the pattern."""
    value = np.full((partitions,) + (1,) * len(pattern), offset, np.int64)
    value += multiplier * np.arange(partitions).reshape((-1,) + (1,) * len(pattern))
    for d, (step, count) in enumerate(pattern):
        shape = [1] * (len(pattern) + 1)
        shape[d + 1] = count
        value = value + step * np.arange(count).reshape(shape)
    return value


def iota(partitions, pattern, dtype, shape=None, **options):
    count = int(np.prod([n for _, n in pattern]))
    return on_tiles(
        lambda out: nisa.iota(out, [list(p) for p in pattern], **options),
        [],
        [(shape or (partitions, count), dtype)],
    )[0]


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    PATTERN,
    st.integers(1, 128),
    STEP,
    STEP,
    st.sampled_from([np.int32, np.float32, BF16, np.int16]),
)
def test_iota(pattern, partitions, offset, multiplier, dtype):
    got = iota(partitions, pattern, dtype, offset=offset, channel_multiplier=multiplier)
    want = affine(partitions, pattern, offset, multiplier).reshape(partitions, -1)
    assert np.array_equal(got.astype(np.float64), rounded(want.astype(np.float64), dtype))


def test_iota_is_exact_in_32_bits_and_wraps():
    got = iota(3, [(1, 5)], np.int32, offset=2**31 - 3, channel_multiplier=2**30)
    want = affine(3, [(1, 5)], 2**31 - 3, 2**30)
    assert np.array_equal(got, want.astype(np.uint32).view(np.int32).reshape(3, 5))
    got = iota(2, [(1, 5)], np.uint32, offset=2**24 + 1)
    assert np.array_equal(got, np.arange(2**24 + 1, 2**24 + 6, dtype=np.uint32)[None].repeat(2, 0))
    got = iota(1, [(1, 3)], np.float32, offset=2**24 + 1)
    assert np.array_equal(got[0], np.float32([2**24, 2**24 + 2, 2**24 + 4]))


@pytest.mark.parametrize(
    "pattern, options, message",
    [
        ([[1, 1]] * 4 + [[1, 6]], {}, "pattern has 5 dimensions; allowed: 1 to 4"),
        ([], {}, "pattern has 0 dimensions"),
        ([[1, 0]], {}, "every count must be at least 1"),
        ([1, 6], {}, "pattern=.*; allowed: a list of up to four"),
        ([[1, 6]], {"offset": 2**31}, "offset=2147483648; allowed: -2147483648 to 2147483647"),
        ([[1, 6]], {"offset": 1.5}, "offset=1.5; allowed: an int known when traced, or a reg"),
        ([[1, 6]], {"channel_multiplier": -(2**31) - 1}, "channel_multiplier=-2147483649"),
    ],
)
def test_iota_refuses(pattern, options, message):
    with pytest.raises(NkiValidationError, match=message):
        on_tiles(lambda out: nisa.iota(out, pattern, **options), [], [((4, 6), np.int32)])


def select(x, pattern, op, false, dtype=None, shape=None, offset=0, multiplier=0):
    return on_tiles(
        lambda x, out: nisa.affine_select(
            out, [list(p) for p in pattern], multiplier, x, false, cmp_op=op, offset=offset
        ),
        [x],
        [(shape or x.shape, dtype or x.dtype)],
    )[0]


@settings(max_examples=25, derandomize=True, deadline=None)
@given(PATTERN, st.integers(1, 128), STEP, STEP, st.sampled_from(sorted(COMPARE, key=str)))
def test_affine_select(pattern, partitions, offset, multiplier, op):
    count = int(np.prod([n for _, n in pattern]))
    x = numbers(partitions, (partitions, count))
    got = select(x, pattern, op, -9984.5, offset=offset, multiplier=multiplier)
    mask = COMPARE[op](affine(partitions, pattern, offset, multiplier), 0).reshape(x.shape)
    assert np.array_equal(got, np.where(mask, x, np.float32(-9984.5)))


@pytest.mark.parametrize("source", [np.float32, BF16, np.int32, np.uint8])
@pytest.mark.parametrize("target", [np.float32, BF16, np.int32, np.uint8])
def test_affine_select_converts(source, target):
    x = numbers(3, (50, 60), source)
    got = select(x, [(-1, 60)], nl.greater_equal, 3.25, dtype=target, multiplier=1)
    mask = np.arange(50)[:, None] >= np.arange(60)
    want = np.where(
        mask, rounded(x.astype(np.float64), target), rounded(np.float64([3.25]), target)
    )
    assert np.array_equal(got.astype(np.float64), want)


def test_affine_select_moves_bits_and_fills_with_infinity():
    x = numbers(4, (10, 20))
    x[7, 3] = np.nan
    x.view(np.uint32)[7, 4] = 0x7FC12345
    got = select(x, [(-1, 20)], nl.greater_equal, -np.inf, multiplier=1)
    mask = np.arange(10)[:, None] >= np.arange(20)
    assert np.array_equal(
        got.view(np.uint32), np.where(mask, x, np.float32(-np.inf)).view(np.uint32)
    )
    ids = (numbers(5, (10, 20), np.int32) + 2**24 + 1).astype(np.int32)
    got = select(ids, [(-1, 20)], nl.greater_equal, -1, multiplier=1)
    assert np.array_equal(got, np.where(mask, ids, -1))


def test_affine_select_wraps_as_the_engine_does():
    x = numbers(7, (4, 6))
    got = select(x, [(1, 6)], nl.greater, 0.0, offset=2**31 - 3)
    mask = affine(4, [(1, 6)], 2**31 - 3).astype(np.uint32).view(np.int32) > 0
    assert np.array_equal(got, np.where(mask, x, 0))


def test_affine_select_refuses():
    x = numbers(8, (4, 6))
    with pytest.raises(NkiValidationError, match="dst 5, on_true_tile 4"):
        select(x, [(1, 6)], nl.equal, 0.0, shape=(5, 6))
