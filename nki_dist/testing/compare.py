"""Comparing results with a reference: how much they may differ, and where they do.

A float result may differ from the reference's `want` by

    ROUNDINGS * u * (|want| + scale) + smallest subnormal + ROUNDINGS * moved

with `u` the unit roundoff of the result's dtype, half the distance of 1 and the next larger number,
and `scale` the median of the reference's values that aren't zero: where terms cancel, an error is
small beside the others, not beside what is left. `moved` is how far the reference itself goes when
each of its float inputs is multiplied by 1 + u or 1 - u, the largest of a few tries: so much is
lost by whoever rounds the inputs once. It's worked out only where the first terms aren't enough.
All else (integers, bool, packed types, NaN and infinities) must be equal.

ROUNDINGS, by bits of the dtype, says how often a right kernel may round at the worst:

    32   256   long sums: 65,536 float32 additions in a row lose about the square root of that
    16   4     inputs, result and two tiles in between; sums must not be kept in 16 bits
    8    2     one tile in between, and the result

The rule is ours: nobody publishes one for devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np

from nki_dist import dtypes
from nki_dist.dtypes import DType
from nki_dist.insight.differences import facts
from nki_dist.testing.report import Difference, Failure

Array: TypeAlias = "np.ndarray[Any, Any]"

ROUNDINGS: Final = {32: 256, 16: 4, 8: 2}
_finfo: Any = ml_dtypes.finfo
_NOT_WORTH: Final = 1e-300  # where relative errors mean nothing
_NEAR: Final = 5e-4  # half of what factors of wrong elements may differ by


@dataclass(frozen=True)
class Tolerance:
    """What a user allows in place of the rule: `atol + rtol * |want|`."""

    rtol: float | None = None
    atol: float | None = None

    @property
    def given(self) -> bool:
        return self.rtol is not None or self.atol is not None


def unit_roundoff(dtype: DType) -> float:
    """Half the distance between 1 and the next larger number of a float dtype."""
    return float(_finfo(dtype.dtype).eps) / 2


def default_tolerance(dtype: DType, want: Array) -> Array:
    """The first three terms of the rule, for each element of the reference's float64 result."""
    size = np.abs(np.where(np.isfinite(want), want, 0.0))
    typical = size[size > 0]
    scale = float(np.median(typical)) if typical.size else 0.0
    least = float(_finfo(dtype.dtype).smallest_subnormal)
    return np.asarray(ROUNDINGS[dtype.bits] * unit_roundoff(dtype) * (size + scale) + least)


def compare(
    output: str,
    got: Array,
    want: Array,
    skipped: Array,
    tolerance: Tolerance,
    moved: Callable[[float], Array],
) -> tuple[Difference | None, Failure | None]:
    """Compare values; shapes are equal and dtypes as they should be.

    Args:
        output: what messages call it.
        got: what the kernel made.
        want: what the reference did: float64, or what integers and bool are.
        skipped: bool of the same shape: elements that aren't judged.
        tolerance: of the user's.
        moved: how far the reference goes when its inputs are changed by so much, relatively.

    Returns:
        The difference of the elements that were compared, None for packed types; and what is wrong,
        if anything is.
    """
    dtype = dtypes.of(got.dtype)
    if dtype.is_mx:
        return None, _bits(output, ~same_bits(got, want) & ~skipped)
    value, expected = _as_numbers(got), _as_numbers(want)
    if not dtype.is_float and expected.dtype.kind == "f":
        expected = np.rint(expected)
    with np.errstate(all="ignore"):
        error = np.abs(value - expected).astype(np.float64)
        # What has no distance is right if both are NaN, or the same infinity: also where the
        # reference's value is one only after rounding to the dtype.
        same = (value == expected) | (np.isnan(value) & np.isnan(expected))
        if dtype.is_float:
            rounded = expected.astype(dtype.dtype).astype(np.float64)
            same |= (value == rounded) & np.isinf(rounded)
        error[same] = 0.0
        error[~same & ~np.isfinite(error)] = np.inf
        error[skipped] = 0.0
        allowed = _allowed(dtype, expected, tolerance)
        wrong = ~(error <= allowed)
        if wrong.any() and dtype.is_float and not tolerance.given:
            u = unit_roundoff(dtype)
            allowed = allowed + ROUNDINGS[dtype.bits] * moved(u)
            wrong = ~(error <= allowed)
        difference = _difference(output, value, expected, error, allowed, wrong, skipped)
    return difference, _wrong_value(difference, value, expected, wrong, allowed)


def _as_numbers(array: Array) -> Array:
    """Floats as float64, integers and bool as int64: exact, and differences don't wrap."""
    kind = "int64" if array.dtype.kind in "iub" else "float64"
    return np.asarray(array).astype(kind)


def _allowed(dtype: DType, expected: Array, tolerance: Tolerance) -> Array:
    if tolerance.given:
        return np.asarray((tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(expected))
    if not dtype.is_float:
        return np.zeros(expected.shape)
    return default_tolerance(dtype, expected)


def _difference(
    output: str,
    value: Array,
    expected: Array,
    error: Array,
    allowed: Array,
    wrong: Array,
    skipped: Array,
) -> Difference:
    share = np.where(error == 0, 0.0, error / np.where(allowed > 0, allowed, _NOT_WORTH))
    share[wrong] = np.maximum(share[wrong], np.nextafter(1.0, 2.0))  # an infinite tolerance
    at = np.unravel_index(int(np.argmax(share)), share.shape)
    sizes = np.abs(expected)
    relative = np.where((error > 0) & (sizes > _NOT_WORTH), error / sizes, 0.0)
    relative = np.where(np.isnan(relative), 0.0, relative)
    return Difference(
        output,
        tuple(int(n) for n in at),
        value[at].item(),
        expected[at].item(),
        float(np.max(error)),
        float(np.max(relative)),
        float(share[at]),
        int(np.count_nonzero(wrong)),
        int(wrong.size - np.count_nonzero(skipped)),
    )


def _wrong_value(
    d: Difference, value: Array, expected: Array, wrong: Array, allowed: Array
) -> Failure | None:
    if not d.wrong:
        return None
    most = float(allowed[d.index])
    numbers = {
        "wrong": d.wrong,
        "elements": d.elements,
        "index": list(d.index),
        "got": d.got,
        "wanted": d.wanted,
        "error": abs(d.got - d.wanted),
        "allowed": most,
    }
    return Failure(
        "wrong-value",
        f"{d.wrong:,} of {d.elements:,} elements of {d.output} differ from the reference, all of "
        f"them in {box(wrong)}; the worst is {d.output}{list(d.index)}: got {d.got:.9g}, the "
        f"reference {d.wanted:.9g}, allowed error {most:.3g}",
        "; ".join(facts(value.astype(np.float64), expected.astype(np.float64), wrong, _NEAR)[2:]),
        numbers=numbers,
    )


def same_bits(a: Array, b: Array) -> Array:
    """Where two arrays of one dtype and shape have the same bits."""
    raw = dtypes.of(a.dtype).raw
    mine, other = (np.ascontiguousarray(x).view(raw).reshape(x.shape) for x in (a, b))
    return np.asarray(mine == other)


def _bits(output: str, wrong: Array) -> Failure | None:
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    message = f"{count:,} of {wrong.size:,} elements of {output} have other bits, in {box(wrong)}"
    return Failure("wrong-value", message, numbers={"wrong": count, "elements": wrong.size})


def box(mask: Array) -> str:
    """The smallest block of an array that has all that is marked, as an index."""
    parts = []
    for axis in range(mask.ndim):
        others = tuple(a for a in range(mask.ndim) if a != axis)
        hit = np.flatnonzero(mask.any(axis=others))
        parts.append(f"{hit[0]}:{hit[-1] + 1}")
    return f"[{', '.join(parts)}]"
