"""Conversions where whole arrays hide mistakes: single values, payloads of NaN, working memory."""

import numpy as np
import pytest

from nki_dist import dtypes
from nki_dist.dtypes import casts
from tests.test_casts import INTEGERS, convert

NANS = np.array([0x7F800001, 0xFF812345, 0xFFFFFFFF, 0x7FBFE000, 0xFFC00000], np.uint32)


@pytest.mark.parametrize("name", INTEGERS)
def test_each_value_alone_rounds_as_among_others(name):
    """Blocks within the range take a shorter way; a value just outside it must not."""
    info = np.iinfo(name)
    ends = np.array([info.min, info.max], np.float32)
    steps = (-1.75, -1.5, -1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1, 1.5, 1.75)
    for value in np.concatenate([ends + np.float32(k) for k in steps]):
        want = np.clip(np.rint(np.float64(value)), info.min, info.max)
        assert convert(np.array([value]), "float32", name).tolist() == [int(want)]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("bfloat16", [0x7FC0, 0xFFC1, 0xFFFF, 0x7FFF, 0xFFC0]),
        ("tfloat32", [0x7FC00000, 0xFFC12000, 0xFFFFE000, 0x7FFFE000, 0xFFC00000]),
        ("float16", [0x7E00, 0xFE09, 0xFFFF, 0x7FFF, 0xFE00]),
    ],
)
def test_nan_keeps_its_sign_and_upper_payload_and_becomes_quiet(name, want):
    got = convert(NANS.view(np.float32), "float32", name).view(dtypes.of(name).raw)
    assert got.tolist() == want


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_pairs_of_narrow_floats_and_an_odd_one(size):
    """Two at a time where that goes, with the same values as one at a time."""
    codes = np.arange(size, dtype=np.uint8) + 0x35
    values = codes.view(dtypes.float8_e5m2.dtype)
    got = convert(values, "float8_e5m2", "float32")
    assert got.tolist() == [float(v) for v in values]


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        (dtypes.float32, dtypes.float16),
        (dtypes.float16, dtypes.float32),
        (dtypes.int8, dtypes.float16),
        (dtypes.float8_e5m2, dtypes.float32),
        (dtypes.float32, dtypes.float8_e5m2),
    ],
    ids=str,
)
def test_converters_work_in_the_memory_they_are_given(src, dst):
    asked = []

    class Counted(casts.Scratch):
        def get(self, slot, shape, dtype):
            asked.append(slot)
            return super().get(slot, shape, dtype)

    casts.converter(src, dst, scratch=Counted())(np.zeros(4, dst.dtype), np.zeros(4, src.dtype))
    assert asked
