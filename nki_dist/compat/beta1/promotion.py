"""The dtype of an arithmetic result in Beta 1.

Numbers without a dtype count as uint8 (bool), int32 or float32; NumPy scalars have the dtype they
say. Follows: "NKI Type Promotion" and "Weakly Typed Scalar Type Inference" of the NKI 0.1
documentation (SDK 2.26). Not documented: bool_ with another type gives the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.dtypes import DType, bfloat16, bool_, float32, int16, int32, uint8
from nki_dist.errors import NkiValidationError

_SIGNED = {16: int16, 32: int32}


def of_operand(x: Any) -> DType:
    """The dtype of a tile or a number."""
    if hasattr(x, "resolve") or hasattr(x, "storage"):
        return x.dtype
    if isinstance(x, np.generic):
        try:
            return dtypes.of(x.dtype)
        except NkiValidationError:  # float64 and int64, which Python numbers turn into
            return float32 if isinstance(x, np.floating) else int32
    if isinstance(x, bool):
        return uint8
    return int32 if isinstance(x, int) else float32


def promoted(a: DType, b: DType) -> DType:
    """The dtype of an operation on two dtypes."""
    if a is b or b is bool_:
        return a
    if a is bool_:
        return b
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return _floats(a, b)
    return _integers(a, b)


def _floats(a: DType, b: DType) -> DType:
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return bfloat16 if a.bits == 8 else float32


def _integers(a: DType, b: DType) -> DType:
    wide, narrow = (a, b) if a.bits >= b.bits else (b, a)
    if wide.kind == narrow.kind or (wide.kind == "int" and wide.bits > narrow.bits):
        return wide
    unsigned = a if a.kind == "uint" else b
    return _SIGNED.get(2 * unsigned.bits, float32)
