"""What fresh memory contains: values that can't pass for results.

Floats are filled with a quiet NaN, so that anything computed from them shows. Types without NaN
(integers, bool, packed fp4) repeat the byte 0x7B: large, the same in every width, and not a number
that kernels write on purpose.

Invariant: `is_poison` compares bits. In float32, tfloat32, bfloat16 and float16 the NaN carries a
payload that ordinary arithmetic doesn't make, and its sign is ignored; conversions among these
types keep it recognisable. float8_e4m3fn and float8_e8m0fnu have only one NaN (per sign), and
float8_e4m3 and float8_e5m2 receive their canonical NaN from conversions, so in 8-bit floats poison
can't be told from a NaN that was computed.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.dtypes.dtype import DType

# Bits of poison, and the bits that count in comparing (not the sign; in 32-bit floats only the
# upper half, which is what survives a trip through bfloat16).
_FLOATS: Final = {
    "float32": (0x7FFB7B7B, 0x7FFF0000),
    "tfloat32": (0x7FFB6000, 0x7FFF0000),
    "bfloat16": (0x7FFB, 0x7FFF),
    # Payload of float32's poison cut to 10 bits, so that narrowing float32 poison gives this; the
    # lower three bits don't count, as bfloat16 can't supply them.
    "float16": (0x7FDB, 0x7FF8),
    "float8_e4m3": (0x7C, 0x7F),
    "float8_e4m3fn": (0x7F, 0x7F),
    "float8_e5m2": (0x7E, 0x7F),
    "float8_e8m0fnu": (0xFF, 0xFF),
    "float8_e5m2_x4": (0x7E7E7E7E, 0x7F7F7F7F),
    "float8_e4m3fn_x4": (0x7F7F7F7F, 0x7F7F7F7F),
}


def _pattern(dtype: DType) -> tuple[int, int]:
    pattern = _FLOATS.get(dtype.name)
    if pattern is None:
        ones = (1 << dtype.bits) - 1
        return 0x7B7B7B7B & ones, ones
    return pattern


def poison_bits(dtype: DType) -> int:
    """The bit pattern that fresh memory of this type is filled with."""
    return _pattern(dtype)[0]


def is_poison(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which elements hold poison; an array of bool of the same shape."""
    bits, mask = _pattern(dtype)
    raw = np.asarray(array).view(dtype.raw)
    counted = dtype.raw.type(mask)
    return np.asarray((raw & counted) == dtype.raw.type(bits & mask))
