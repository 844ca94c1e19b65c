"""Packed microscaling types: four small floats in one element, and their shared scales.

Invariant: value 0 sits in the lowest bits of the packed element, value 3 in the highest, so the
packed array viewed as bytes (or its nibbles, low first) is the plain sequence of codes.

Conversions round once to nearest even and saturate, as the OCP Microscaling
specification (v1.0, section 6.3) has it for MX elements. A scale of type float8_e8m0fnu is a biased
exponent: code c means 2**(c - 127), and 0xFF is NaN. Not modelled here: how a scale is chosen
(that is `nisa.quantize_mx`).

Layout after AWS Neuron SDK, `nki/deep-dives/mxfp-matmul` and its sources.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import ml_dtypes
import numpy as np

from nki_dist.dtypes import dtype as dt
from nki_dist.dtypes import tables
from nki_dist.dtypes.casts import converter
from nki_dist.dtypes.dtype import DType
from nki_dist.dtypes.scratch import Array, Scratch
from nki_dist.errors import invalid

_FP4: Final = np.dtype(ml_dtypes.float4_e2m1fn)
E8M0_BIAS: Final = 127
E8M0_NAN: Final = 0xFF


def element(dtype: DType) -> DType | None:
    """The type of one of the four values; None for float4_e2m1fn, which isn't an NKI type."""
    _require_packed(dtype)
    if dtype is dt.float8_e5m2_x4:
        return dt.float8_e5m2
    return dt.float8_e4m3fn if dtype is dt.float8_e4m3fn_x4 else None


def pack_x4(values: Any, dtype: DType) -> Array:
    """Round float32 values to the packed type, four along the last axis into each element.

    Args:
        values: array of shape (..., 4 * n), converted to float32 first.
        dtype: a packed type.

    Returns:
        Array of shape (..., n) in the storage dtype of `dtype`.

    Raises:
        NkiValidationError: `dtype` isn't packed, or the last axis isn't a multiple of 4.
    """
    one = element(dtype)
    floats = np.ascontiguousarray(values, np.float32)  # of one dimension at least
    if floats.shape[-1] % 4:
        message = (
            f"values to pack as {dtype.name} must come in fours along the last axis: "
            f"got shape {np.shape(values)}"
        )
        raise invalid(message, code="mx-packing", got=np.shape(values))
    if one is None:
        return _pack_fp4(floats)
    codes = np.empty(floats.shape, one.storage)
    converter(dt.float32, one, saturate=True)(codes, floats)
    return codes.view(dtype.storage)


def unpack_x4(packed: Any, dtype: DType) -> Array:
    """The float32 values in an array of a packed type: shape (..., n) gives (..., 4 * n).

    Args:
        packed: an array of the type, or of the words that hold it.

    Raises:
        NkiValidationError: `dtype` isn't packed, or the array isn't of it.
    """
    one = element(dtype)
    array = np.ascontiguousarray(packed)
    if array.dtype == dtype.dtype:
        array = array.view(dtype.storage)
    if array.dtype != dtype.storage or array.ndim == 0:
        message = (
            f"packed {dtype.name} values must be an array of {dtype.storage}: "
            f"got {array.dtype} of shape {np.shape(packed)}"
        )
        raise invalid(message, code="mx-packing", got=array.dtype, allowed=dtype.storage)
    shape = (*array.shape[:-1], 4 * array.shape[-1])
    if one is None:
        return _fp4_pairs()[array.view(np.uint8)].view(np.float32).reshape(shape)
    out = np.empty(shape, np.float32)
    converter(one, dt.float32)(out, array.view(one.storage))
    return out


def _pack_fp4(values: Array) -> Array:
    table = tables.narrow_codes(_FP4, None)
    codes = table.take(tables.sticky_index(values, Scratch()), mode="wrap")
    pairs: Array = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return pairs.view(np.uint16)


@functools.cache
def _fp4_pairs() -> Array:
    """For each byte, its two float32 values side by side in memory."""
    values, codes = tables.values_of(_FP4), np.arange(256)
    pairs = np.stack([values[codes & 0xF], values[codes >> 4]], axis=-1).view(np.uint64)
    return tables.frozen(pairs.reshape(256))


def e8m0_to_float32(codes: Any) -> Array:
    """Scales as float32: 2**(code - 127), NaN for 0xFF. Takes uint8 or float8_e8m0fnu arrays."""
    array = np.asarray(codes)
    if array.dtype.itemsize != 1:
        message = f"scale codes must be 1 byte each (uint8 or float8_e8m0fnu): got {array.dtype}"
        raise invalid(message, code="mx-packing", got=array.dtype)
    out = np.empty(array.shape, np.float32)
    converter(dt.float8_e8m0fnu, dt.float32)(out, array.view(dt.float8_e8m0fnu.storage))
    return out


def _require_packed(dtype: DType) -> None:
    if not dtype.is_mx:
        allowed = ", ".join(d.name for d in dt.ALL if d.is_mx)
        message = f"data type must be packed: got {dtype.name}, allowed {allowed}"
        raise invalid(message, code="mx-packing")
