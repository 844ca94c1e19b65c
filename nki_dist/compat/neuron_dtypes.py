"""`neuron_dtypes`, and `neuronxcc.starfish.support.dtype`: NKI's data types on NumPy arrays.

AWS distributes this package without documentation; what is here is what published tests and
references use. Invariant: the types are NumPy dtypes, so `array.astype(bfloat16)` works. The three
packed types are structured dtypes of one field, which is the only way a NumPy array can say that
its 32-bit words are four 8-bit floats; kernels take such arrays as tensors of the packed type.

Conversions round to nearest even. Overflow gives infinity or NaN as in ml_dtypes, except for the
packed types, which saturate (OCP Microscaling, section 6.3).
"""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

from nki_dist import dtypes
from nki_dist.dtypes.casts import converter
from nki_dist.dtypes.mx import pack_x4, unpack_x4
from nki_dist.errors import NkiValidationError

bfloat16: Final = ml_dtypes.bfloat16
float8_e3m4: Final = ml_dtypes.float8_e3m4
float8_e4m3: Final = ml_dtypes.float8_e4m3
float8_e4m3fn: Final = ml_dtypes.float8_e4m3fn
float8_e5m2: Final = ml_dtypes.float8_e5m2
float8_e8m0fnu: Final = ml_dtypes.float8_e8m0fnu
float4_e2m1fn: Final = ml_dtypes.float4_e2m1fn
float8_e5m2_x4: Final = dtypes.float8_e5m2_x4.dtype
float8_e4m3fn_x4: Final = dtypes.float8_e4m3fn_x4.dtype
float4_e2m1fn_x4: Final = dtypes.float4_e2m1fn_x4.dtype


def static_cast(array: Any, dtype: Any) -> np.ndarray:
    """An array converted to a data type, as a copy.

    Args:
        array: a NumPy array, or anything NumPy makes one of. Of a packed type, its last axis gets
            four times as long.
        dtype: an NKI, NumPy or framework dtype. For a packed type the last axis must be a multiple
            of four, and gets a quarter as long.

    Raises:
        NkiValidationError: the last axis can't be packed, or no such type.
    """
    source = np.asarray(array)
    target = dtypes.find(dtype)
    packed = dtypes.find(source.dtype)
    if packed is not None and packed.is_mx:
        if target is packed:
            return source.copy()
        return static_cast(unpack_x4(source.view(packed.storage), packed), dtype)
    if target is not None and target.is_mx:
        return pack_x4(_floats(source), target).view(target.dtype)
    if target is None:  # 64-bit types and others that only the host has
        return source.astype(_numpy(dtype))
    if target.is_float and target is not dtypes.float32:
        out = np.empty(source.shape, target.storage)
        converter(dtypes.float32, target)(out, _floats(source))
        return out
    return source.astype(target.dtype)


def finfo(dtype: Any) -> Any:
    """Limits of a floating-point type, like `numpy.finfo`."""
    found = dtypes.find(dtype)
    return ml_dtypes.finfo(_numpy(dtype) if found is None else found.dtype)


def iinfo(dtype: Any) -> Any:
    """Limits of an integer type, like `numpy.iinfo`."""
    found = dtypes.find(dtype)
    return np.iinfo(_numpy(dtype) if found is None else found.dtype)


def sizeinbytes(dtype: Any) -> int:
    """Bytes of one element; a packed type counts its four values as one element."""
    found = dtypes.find(dtype)
    return _numpy(dtype).itemsize if found is None else found.itemsize


def is_float_type(dtype: Any) -> bool:
    """Whether a type is a floating-point type; packed types are not."""
    found = dtypes.find(dtype)
    if found is not None:
        return found.is_float
    try:
        return bool(finfo(dtype))
    except ValueError:  # how NumPy answers for an integer
        return False


def _floats(array: np.ndarray) -> np.ndarray:
    """As float32, the type all conversions start from."""
    return np.ascontiguousarray(array).astype(np.float32).reshape(array.shape)


def _numpy(dtype: Any) -> np.dtype:
    try:
        return np.dtype(dtype)
    except TypeError:
        raise NkiValidationError(f"not a data type: {dtype!r}", code="dtype-unknown") from None


__all__ = [
    "bfloat16",
    "finfo",
    "float4_e2m1fn",
    "float4_e2m1fn_x4",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "iinfo",
    "is_float_type",
    "sizeinbytes",
    "static_cast",
]
