"""How far a result may be from the reference's, by dtype, and what is said of those beyond."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_dist import dtypes
from nki_dist.testing.compare import (
    ROUNDINGS,
    Tolerance,
    box,
    compare,
    default_tolerance,
    unit_roundoff,
)


def unmoved(change: float) -> Any:
    return 0.0


def judged(
    got: Any,
    want: Any,
    dtype: Any = np.float32,
    tolerance: Tolerance | None = None,
    skipped: Any = None,
    moved: Callable[[float], Any] = unmoved,
) -> SimpleNamespace:
    array = np.asarray(got).astype(dtype)
    wanted = np.asarray(want, np.float64 if np.asarray(want).dtype.kind == "f" else None)
    mask = np.zeros(array.shape, bool) if skipped is None else np.asarray(skipped)
    found = compare("output", array, wanted, mask, tolerance or Tolerance(), moved)
    return SimpleNamespace(difference=found[0], failure=found[1])


# Unit roundoffs as IEEE 754 and OCP say: 2^-p for p bits of precision.
PRECISION = {"float32": 24, "float16": 11, "bfloat16": 8, "float8_e4m3": 4, "float8_e5m2": 3}


@pytest.mark.parametrize("name", PRECISION)
def test_what_is_allowed_follows_from_the_precision(name: str) -> None:
    dtype = dtypes.of(name)
    assert unit_roundoff(dtype) == 2.0 ** -PRECISION[name]
    want = np.array([0.0, 1.0, -1.0, 8.0, np.nan, np.inf])
    share = ROUNDINGS[dtype.bits] * 2.0 ** -PRECISION[name]
    allowed = default_tolerance(dtype, want)
    # the median of those that aren't zero and finite is 1
    np.testing.assert_allclose(allowed, share * np.array([1, 2, 2, 9, 1, 1]), rtol=2e-2)


# The largest value that passes for 1 where 1 is typical, and the next one.
EDGES = {
    "float32": (1 + 2**-15, 1 + 2**-15 + 2**-23),
    "float16": (1 + 2**-8, 1 + 2**-8 + 2**-10),
    "bfloat16": (1 + 2**-5, 1 + 2**-5 + 2**-7),
    "float8_e4m3": (1.25, 1.375),
    "float8_e5m2": (1.5, 1.75),
}


@pytest.mark.parametrize("name", EDGES)
def test_just_inside_and_just_outside(name: str) -> None:
    inside, outside = EDGES[name]
    dtype = dtypes.of(name).dtype
    assert judged([inside], [1.0], dtype).failure is None
    found = judged([outside], [1.0], dtype)
    assert found.failure is not None and found.failure.code == "wrong-value"
    assert found.difference is not None and found.difference.share > 1


def test_what_the_reference_moves_is_allowed_where_it_is_needed() -> None:
    asked = []

    def moved(change: float) -> Any:
        asked.append(change)
        return np.array([0.0, 1e-3 / ROUNDINGS[32]])

    assert judged([1.0, 1.0], [1.0, 1.0], moved=moved).failure is None and not asked
    assert judged([1.0, 1.0009], [1.0, 1.0], moved=moved).failure is None
    assert asked == [2.0**-24]
    assert judged([1.0009, 1.0], [1.0, 1.0], moved=moved).failure is not None


def test_a_users_tolerance_is_all_there_is() -> None:
    def moved(change: float) -> Any:
        raise AssertionError("not asked for")

    for ok, tolerance in ((True, Tolerance(rtol=0.11)), (False, Tolerance(rtol=0.09))):
        assert (judged([1.1], [1.0], tolerance=tolerance, moved=moved).failure is None) is ok
    assert judged([5.0], [4.0], np.int32, Tolerance(atol=1)).failure is None
    assert judged([6.0], [4.0], np.int32, Tolerance(atol=1)).failure is not None
    assert judged([1.0 + 1e-7], [1.0], tolerance=Tolerance(atol=0.0), moved=moved).failure


def test_infinities_and_nan_are_equal_to_themselves_only() -> None:
    inf, nan = np.inf, np.nan
    assert judged([inf, -inf, nan, 1], [inf, -inf, nan, 1]).failure is None
    for got, want in ((inf, -inf), (nan, 1.0), (1.0, nan), (inf, nan), (3e38, inf), (inf, 1.0)):
        found = judged([got, 2.0], [want, 2.0])
        assert found.failure is not None and found.failure.numbers is not None
        assert found.failure.numbers["wrong"] == 1, (got, want)
        assert found.difference is not None and found.difference.index == (0,)
        assert found.difference.abs_error == inf


def test_what_overflows_the_dtype_is_infinite() -> None:
    assert judged([np.inf], [1e39]).failure is None
    assert judged([np.inf], [-1e39]).failure is not None
    assert judged([np.inf], [70000.0], np.float16).failure is None
    assert judged([np.inf], [60000.0], np.float16).failure is not None
    assert judged([240.0], [245.0], ml_dtypes.float8_e4m3).failure is None


def test_integers_are_exact() -> None:
    assert judged([2**31 - 1], np.array([2**31 - 1]), np.int32).failure is None
    found = judged([2**31 - 1], np.array([2**31 - 2]), np.int32)
    assert found.failure is not None and "got 2.14748365e+09" in found.failure.message
    assert judged([0], np.array([255]), np.uint8).difference.abs_error == 255  # type: ignore[union-attr]
    assert judged([2**32 - 1], np.array([5]), np.uint32).difference.abs_error == 2**32 - 6  # type: ignore[union-attr]
    assert judged([2], [2.5], np.int32).failure is None, "rounded to nearest even"
    assert judged([3], [2.5], np.int32).failure is not None


def test_skipped_elements_do_not_count() -> None:
    found = judged([1.0, 7.0], [1.0, 2.0], skipped=[False, True])
    assert found.failure is None
    assert found.difference is not None and found.difference.elements == 1
    assert found.difference.abs_error == 0


def test_the_worst_element_is_the_one_farthest_beyond_what_is_allowed() -> None:
    want = np.array([[1e6, 1.0, 1.0]])
    got = np.array([[1e6 + 20, 1.0, 1.5]])
    found = judged(got, want).difference
    assert found is not None and found.index == (0, 2) and (found.got, found.wanted) == (1.5, 1.0)
    assert found.abs_error == 20 and found.rel_error == 0.5 and found.wrong == 2


RECOGNISED = {
    "zero": ([0.0, 0.0, 3.0], [1.0, 2.0, 3.0], "all of them are 0"),
    "NaN": ([np.nan, 2.0], [1.0, 2.0], "1 of them are NaN"),
    "wanted NaN": ([1.0, 2.0], [np.nan, 2.0], "finite where NaN is expected"),
    "equal": ([5.0, 5.0, 5.0], [1.0, 2.0, 5.0], "all of them are 5"),
    "sign": ([-1.0, -2.0, 3.0], [1.0, 2.0, 3.0], "they are -1 times what is expected"),
    "factor": ([2.0, 4.0, 6.0, 1.0], [1.0, 2.0, 3.0, 1.0], "they are 2 times what is expected"),
    "nothing": ([2.0, 7.0, 6.0, 1.0], [1.0, 2.0, 3.0, 1.0], "off by 100 %"),
}


@pytest.mark.parametrize("what", RECOGNISED)
def test_what_is_recognised(what: str) -> None:
    got, want, hint = RECOGNISED[what]
    failure = judged(got, want).failure
    assert failure is not None
    assert hint in (failure.hint or "")


def test_where_they_are() -> None:
    mask = np.zeros((4, 5, 6), bool)
    mask[1, 2, 3] = mask[2, 2, 5] = True
    assert box(mask) == "[1:3, 2:3, 3:6]"


def test_packed_types_are_compared_by_bits() -> None:
    packed = dtypes.of("float8_e4m3fn_x4")
    a = np.array([1, 2, 3], np.uint32).view(packed.dtype)
    b = np.array([1, 2, 4], np.uint32).view(packed.dtype)
    nothing = np.zeros(3, bool)
    assert compare("output", a, a, nothing, Tolerance(), unmoved) == (None, None)
    _, failure = compare("output", a, b, nothing, Tolerance(), unmoved)
    assert failure is not None and "1 of 3 elements of output have other bits, in [2:3]" in str(
        failure
    )
