"""Conversions between the data types of NKI, chosen once and then applied to many arrays.

Invariant: `converter(a, a)` moves bits; every other conversion is the value as float32 (exact for
all types but 32-bit integers, which round to nearest even) rounded once to the destination. This is
the two-step cast AWS documents for DMA and the compute engines (`nki/api/nki/isa/__init__.py`,
`dma_copy`, `tensor_copy`).

Rules per destination: `rounding` (bfloat16, float16, tfloat32, integers, bool) and `tables` (8-bit
floats, with what overflow does). tfloat32 is float32 rounded to 10 mantissa bits when written;
reading takes the stored float32 as it is.

Not modelled: stochastic rounding. Packed types have no element-wise conversion (`mx` has theirs).
"""

from __future__ import annotations

import functools

import numpy as np

from nki_dist.dtypes import dtype as dt
from nki_dist.dtypes import rounding, tables
from nki_dist.dtypes.dtype import DType
from nki_dist.dtypes.scratch import Array, Kernel, Scratch, blocked
from nki_dist.errors import invalid

_NARROW = frozenset({dt.float8_e4m3, dt.float8_e4m3fn, dt.float8_e5m2, dt.float8_e8m0fnu})
_WIDE = frozenset({dt.float32, dt.tfloat32})  # stored as float32


def converter(
    src: DType, dst: DType, *, saturate: bool = False, scratch: Scratch | None = None
) -> Kernel:
    """The function `f(out, inp)` that writes `inp`, of type `src`, to `out`, of type `dst`.

    Both arrays have the storage dtypes of their types and the same shape; strides are free (0
    included, on `inp`), and so is overlap. `f` isn't to be called by two threads at once when they
    share a `scratch`; without one, each converter owns its working memory.

    Args:
        src: type of the input.
        dst: type of the output.
        saturate: 8-bit float destinations take their largest finite value instead of infinity or
            NaN on overflow.
        scratch: working memory to share among the converters of one core.

    Raises:
        NkiValidationError: one of two different types is packed (`*_x4`).
    """
    if src is dst:
        return _bit_copy(src)
    if src.is_mx or dst.is_mx:
        message = f"a packed data type only converts to itself: got {src.name} -> {dst.name}"
        raise invalid(message, code="dtype-packed")
    memory = scratch or Scratch()
    if dt.float64 in (src, dst):
        return _double(src, dst, memory)
    if src in _WIDE:
        return blocked(_from_float32(dst, memory, saturate))
    if dst is dt.float32 or (dst is dt.tfloat32 and (src.is_float or src.bits == 8)):
        return blocked(_to_float32(src, memory))
    if _worth_a_table(src, dst):
        return blocked(tables.lookup(_table(src, dst, saturate), src, memory))
    return blocked(_through_float32(src, dst, memory, saturate))


def _worth_a_table(src: DType, dst: DType) -> bool:
    """One lookup beats two steps unless both are cheap: 16-bit floats to integers and bool."""
    return src.is_float and (src.bits == 8 or dst.is_float)


def _bit_copy(dtype: DType) -> Kernel:
    raw = dtype.raw
    if dtype.storage.isbuiltin == 1 and dtype is not dt.bool_:
        return np.copyto  # NumPy copies its own number types as bits

    def kernel(out: Array, inp: Array) -> None:
        np.copyto(out.view(raw), inp.view(raw))

    return kernel


def _from_float32(dst: DType, scratch: Scratch, saturate: bool) -> Kernel:
    if dst is dt.bfloat16:
        return rounding.to_bfloat16(scratch)
    if dst is dt.float32:
        return np.copyto  # from tfloat32
    if dst is dt.tfloat32:
        return rounding.to_tfloat32(scratch)
    if dst is dt.float16:
        return rounding.to_float16(scratch)
    if dst in _NARROW:
        return tables.to_narrow_float(dst, scratch, saturate)
    if dst is dt.bool_:
        return rounding.to_bool
    return rounding.to_integer(dst, scratch)


def _to_float32(src: DType, scratch: Scratch) -> Kernel:
    if src.is_integer or src in _WIDE or src is dt.bfloat16:
        return _plain
    if src is dt.bool_:
        return _from_bool
    if src in _NARROW:
        return tables.lookup_pairs(tables.values_of(src.storage), src, scratch)
    return tables.lookup(tables.values_of(src.storage), src, scratch)


def _double(src: DType, dst: DType, scratch: Scratch) -> Kernel:
    """Nothing is rounded on the way to float64, and once on the way back, by way of float32."""
    if dst is dt.float64 or dst in _WIDE:
        return _plain
    narrow = blocked(_from_float32(dst, scratch, False))

    def kernel(out: Array, inp: Array) -> None:
        narrow(out, inp.astype(np.float32))

    return kernel


def _plain(out: Array, inp: Array) -> None:
    # Integers round to nearest even; ml_dtypes widens bfloat16 by moving its bits.
    np.copyto(out, inp)


def _from_bool(out: Array, inp: Array) -> None:
    # A byte other than 0 and 1 can get there through a bit cast; it is still true.
    np.copyto(out, np.not_equal(inp.view(np.uint8), 0))


def _through_float32(src: DType, dst: DType, scratch: Scratch, saturate: bool) -> Kernel:
    read, write = _to_float32(src, scratch), _from_float32(dst, scratch, saturate)

    def kernel(out: Array, inp: Array) -> None:
        middle = scratch.get("middle", inp.shape, rounding.F32)
        read(middle, inp)
        write(out, middle)

    return kernel


@functools.cache
def _table(src: DType, dst: DType, saturate: bool) -> Array:
    """Bits of `dst` for every pattern of `src`, by way of float32."""
    inp = np.arange(1 << src.bits, dtype=np.uint32).astype(src.raw).view(src.storage)
    table = np.empty(inp.shape, dst.storage)
    _through_float32(src, dst, Scratch(), saturate)(table, inp)
    return tables.frozen(table.view(dst.raw))
