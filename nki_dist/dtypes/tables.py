"""Conversions by table, for types of 16 bits and less.

Invariant: a table is a pure function of its types, read-only, and built at most once per process.

Reading: every pattern of a narrow type has one value, so `np.take` converts.

Writing an 8- or 4-bit float needs no more of a float32 than its upper 16 bits (sign, exponent and
7 mantissa bits) when the lowest of those is set whenever a bit below was: "rounding to odd". The
destinations keep at most 3 mantissa bits, so the 7 hold the rounding bit and at least two more
below it, and no value can move onto or across the middle between two destination values. So a table
of 65,536 entries rounds every float32 exactly, once.

Overflow follows the destination. float8_e4m3 and float8_e5m2 have an infinity and round to it as
IEEE 754 does; AWS documents it for the float32 minimum that `range_select` writes
(`nki/api/nki/isa/__init__.py`: it becomes -INF in FP16, BF16 and FP8). float8_e4m3fn has none, AWS
documents nothing, and NaN is what ml_dtypes and torch give: kernels that want the largest value
clamp first. `saturate=True` gives the largest finite value instead, for infinities too: the OCP
conversion that MX quantisation uses. float8_e8m0fnu has neither sign nor zero: zero and negative
values become NaN (0xFF). float4_e2m1fn always saturates, and has no NaN: NaN becomes -0 as in
ml_dtypes.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import ml_dtypes
import numpy as np

from nki_dist.dtypes.dtype import DType
from nki_dist.dtypes.rounding import U32
from nki_dist.dtypes.scratch import Array, Kernel, Scratch

INDEX: Final = np.dtype(np.intp)


def sticky_index(inp: Array, scratch: Scratch) -> Array:
    """Upper halves of float32 values, lowest bit set where the lower half isn't zero."""
    bits = inp.view(U32)
    work = scratch.get("a", inp.shape, U32)
    np.bitwise_and(bits, 0xFFFF, out=work)
    np.add(work, 0xFFFF, out=work)  # carries into bit 16 unless the lower half is zero
    np.bitwise_or(work, bits, out=work)
    np.right_shift(work, 16, out=work)
    index = scratch.get("index", inp.shape, INDEX)
    np.copyto(index, work)
    return index


def frozen(table: Array) -> Array:
    """The table itself, not to be written to."""
    table.flags.writeable = False
    return table


@functools.cache
def narrow_codes(storage: Any, largest: float | None) -> Array:
    """Codes of an 8- or 4-bit float for every 16-bit index; clamped to ±largest if given."""
    patterns = np.arange(65536, dtype=np.uint32) << np.uint32(16)
    values = patterns.view(np.float32)
    with np.errstate(all="ignore"):
        if largest is not None:
            values = np.clip(values, -largest, largest)  # NaN stays NaN
        return frozen(values.astype(storage).view(np.uint8))


def to_narrow_float(dst: DType, scratch: Scratch, saturate: bool = False) -> Kernel:
    """float32 -> an 8-bit float."""
    table = narrow_codes(dst.storage, float(dst.max) if saturate else None)

    def kernel(out: Array, inp: Array) -> None:
        # Indices are in range by construction; "wrap" is the fastest mode that accepts `out`.
        np.take(table, sticky_index(inp, scratch), out=out.view(np.uint8), mode="wrap")

    return kernel


def lookup(table: Array, src: DType, scratch: Scratch) -> Kernel:
    """A conversion that finds the bits of the result in `table`, indexed by the bits of `src`."""

    def kernel(out: Array, inp: Array) -> None:
        index = scratch.get("index", inp.shape, INDEX)
        np.copyto(index, inp.view(src.raw))
        np.take(table, index, out=out.view(table.dtype), mode="wrap")

    return kernel


def lookup_pairs(table: Array, src: DType, scratch: Scratch) -> Kernel:
    """8-bit float -> float32 two elements at a time, where both arrays are contiguous."""
    pairs = _pairs(table.tobytes())
    single = lookup(table, src, scratch)

    def kernel(out: Array, inp: Array) -> None:
        if inp.size & 1 or not (inp.flags.c_contiguous and out.flags.c_contiguous):
            single(out, inp)
            return
        halves = inp.reshape(-1).view(np.uint16)
        index = scratch.get("index", halves.shape, INDEX)
        np.copyto(index, halves)
        np.take(pairs, index, out=out.reshape(-1).view(np.uint64), mode="wrap")

    return kernel


@functools.cache
def _pairs(table: bytes) -> Array:
    """For each two codes, the two float32 values side by side in memory."""
    values = np.frombuffer(table, np.uint32)
    codes = np.arange(65536, dtype=np.uint16).view(np.uint8)
    return frozen(values[codes].view(np.uint64))


@functools.cache
def values_of(storage: np.dtype[Any]) -> Array:
    """Bits of the float32 value of every code of a float of 16 bits or less."""
    size = storage.itemsize
    count = 16 if storage == np.dtype(ml_dtypes.float4_e2m1fn) else 1 << 8 * size
    with np.errstate(all="ignore"):
        values = np.arange(count, dtype=f"u{size}").view(storage).astype(np.float32)
    return frozen(values.view(np.uint32))
