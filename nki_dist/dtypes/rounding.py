"""Converts arrays of float32 to one narrower type, with one rounding of each element.

Each factory returns `kernel(out, inp)` for blocks of at most `scratch.BLOCK` elements; `inp` is
float32. No operation is ever executed on lanes where it would be invalid or overflow (NaN, out of
range), which would make NumPy warn and, for integers, give what the processor happens to give.

NaN keeps its sign and its upper payload bits where the destination has room (bfloat16, tfloat32,
float16) and is made quiet.

Rounding is to nearest, ties to even. Not modelled: stochastic rounding
(`NEURON_RT_STOCHASTIC_ROUNDING_EN`), which is off by default.

Float to integer: nearest even, saturating at the range ends, as AWS's release notes of NKI 0.6
state for hardware (`release-notes/components/nki.rst`, `nki.simulate` fixes). NaN becomes 0, which
those notes leave open.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.dtypes.dtype import DType
from nki_dist.dtypes.scratch import Array, Kernel, Scratch

U32: Final = np.dtype(np.uint32)
F32: Final = np.dtype(np.float32)
_MAGNITUDE: Final = 0x7FFFFFFF
_EXPONENT: Final = 0x7F800000
_ZERO: Final = np.float32(0)
_F16_MIN_NORMAL: Final = np.float32(2.0**-14)
_F16_OVERFLOW: Final = np.float32(2.0**16)


def _has_nan(values: Array) -> bool:
    low = values.min()  # NaN wins; cheaper than isnan().any()
    return bool(low != low)


def _round_at(bits: Array, shift: int, out: Array) -> None:
    """out = bits with a half of bit `shift` added so that cutting below it rounds to even."""
    np.right_shift(bits, shift, out=out)
    np.bitwise_and(out, 1, out=out)
    np.add(out, bits, out=out)
    np.add(out, (1 << (shift - 1)) - 1, out=out)


def to_bfloat16(scratch: Scratch) -> Kernel:
    """float32 -> bfloat16.

    ml_dtypes does it as fast as integer arithmetic would and with one call, but it warns about
    signalling NaN and drops payloads, so arrays with a NaN go the other way.
    """

    def kernel(out: Array, inp: Array) -> None:
        if not _has_nan(inp):
            np.copyto(out, inp, casting="unsafe")
            return
        bits = inp.view(U32)
        work = scratch.get("a", inp.shape, U32)
        _round_at(bits, 16, work)
        np.right_shift(work, 16, out=work)
        # The added half may have carried out of a NaN.
        np.copyto(work, (bits >> 16) | 0x40, where=np.isnan(inp))
        np.copyto(out.view(np.uint16), work)

    return kernel


def to_tfloat32(scratch: Scratch) -> Kernel:
    """float32 -> tfloat32: the same 32 bits with the mantissa rounded to its upper 10."""

    def kernel(out: Array, inp: Array) -> None:
        bits = inp.view(U32)
        work = scratch.get("a", inp.shape, U32)
        _round_at(bits, 13, work)
        np.bitwise_and(work, 0xFFFFE000, out=work)
        if _has_nan(inp):
            np.copyto(work, (bits & 0xFFFFE000) | 0x400000, where=np.isnan(inp))
        np.copyto(out.view(U32), work)

    return kernel


def to_float16(scratch: Scratch) -> Kernel:
    """float32 -> float16; overflow becomes infinity, as IEEE 754 rounds.

    Adding 2**(e+13) to a magnitude in [2**e, 2**(e+1)) makes the float32 adder round it to a
    multiple of 2**(e-10), which is float16's spacing there; below 2**-14 the spacing stays that of
    e = -14. The lower half of the sum's bit pattern is then the float16 significand: that of the
    number added is zero.
    """

    def kernel(out: Array, inp: Array) -> None:
        bits = inp.view(U32)
        value = scratch.get("a", inp.shape, U32)
        magic = scratch.get("b", inp.shape, U32)
        value_f, magic_f = value.view(F32), magic.view(F32)
        nan = _has_nan(inp)
        np.bitwise_and(bits, _MAGNITUDE, out=value)
        if nan:
            np.copyto(value, 0, where=np.isnan(inp))
        value_f.clip(_ZERO, _F16_OVERFLOW, out=value_f)
        np.bitwise_and(value, _EXPONENT, out=magic)
        magic_f.clip(_F16_MIN_NORMAL, _F16_OVERFLOW, out=magic_f)
        np.add(magic, 13 << 23, out=magic)
        np.add(value_f, magic_f, out=value_f)
        np.right_shift(magic, 13, out=magic)
        np.add(value, magic, out=value)
        # magic's exponent field is e + 13 + 127; float16's is e + 15, less the 1 that the hidden
        # bit of the significand (or its absence, for subnormals) brings.
        np.subtract(value, (13 + 127 - 15 + 1) << 10, out=value)
        np.right_shift(bits, 16, out=magic)
        np.bitwise_and(magic, 0x8000, out=magic)
        np.bitwise_or(value, magic, out=value)
        if nan:
            np.copyto(value, _float16_nan(bits), where=np.isnan(inp))
        np.copyto(out.view(np.uint16), value)

    return kernel


def _float16_nan(bits: Array) -> Any:
    return ((bits >> 16) & 0x8000) | 0x7E00 | ((bits >> 13) & 0x1FF)


def to_integer(dst: DType, scratch: Scratch) -> Kernel:
    """float32 -> an integer type: nearest even, saturating, NaN -> 0."""
    low, high = np.float32(dst.min), np.float32(dst.max)
    if int(high) > dst.max:  # 2**31 - 1 and 2**32 - 1 aren't float32 values
        high = np.nextafter(high, np.float32(0))
    lowest = low - np.float32(0.5)  # rounds to `low`, which is even

    def kernel(out: Array, inp: Array) -> None:
        work = scratch.get("a", inp.shape, F32)
        if inp.min() >= lowest and inp.max() <= high:  # False if there is a NaN
            np.rint(inp, out=work)
            np.copyto(out, work, casting="unsafe")
            return
        over = inp > high
        np.copyto(work, inp)
        np.copyto(work, 0, where=np.isnan(inp))  # before rint, which warns on signalling NaN
        np.rint(work, out=work)
        work.clip(low, high, out=work)
        np.copyto(out, work, casting="unsafe")
        # Where high isn't the type's maximum, no float32 lies between them.
        np.copyto(out, dst.max, where=over, casting="unsafe")

    return kernel


def to_bool(out: Array, inp: Array) -> None:
    """float32 -> bool: anything but zero is true, NaN included."""
    np.not_equal(inp, 0, out=out)
