"""A value for every element of a storage: patterns, views of other types, what is covered."""

from __future__ import annotations

import numpy as np
import pytest

from nki_dist import dtypes
from nki_dist.compiler.passes.elements import Elements, covers
from nki_dist.program import Access, MemoryRegion, Storage


def test_elements_agree_with_indexing() -> None:
    """Masks of strided, reversed and reinterpreted views against NumPy's own indexing."""
    s = Storage(0, MemoryRegion.sbuf, (5, 12), dtypes.float32)
    marks = Elements(s)
    marks.put(Access(s, 1, (5, 3), (12, 4), dtypes.float32), np.ones((5, 3), bool))
    marks.put(Access(s, 24 * 2 + 7, (4,), (-2,), dtypes.bfloat16), np.ones(4, bool))
    want = np.zeros((5, 12, 2), bool)
    want[:, 1::4][:, :3] = True
    want.reshape(-1)[[55, 53, 51, 49]] = True
    whole = Access(s, 0, (5, 12), (12, 1), dtypes.float32)
    assert np.array_equal(marks.any(whole), want.any(axis=2))
    halves = Access(s, 0, (5, 24), (24, 1), dtypes.bfloat16)
    assert np.array_equal(marks.any(halves), want.reshape(5, 24))


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "whole"),
    [
        ((5, 12), (12, 1), 0, True),
        ((12, 5), (1, 12), 0, True),
        ((5, 12), (12, -1), 11, True),
        ((5, 12), (12, 0), 0, False),
        ((5, 11), (12, 1), 0, False),
        ((1, 60), (0, 1), 0, True),
    ],
)
def test_covers(shape, strides, offset, whole) -> None:
    s = Storage(0, MemoryRegion.sbuf, (5, 12), dtypes.float32)
    assert covers(Access(s, offset, shape, strides, dtypes.float32)) is whole
