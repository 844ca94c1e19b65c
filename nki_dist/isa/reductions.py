"""Reductions over the last axis with an ALU operator, in a defined order.

Invariant: the result depends on the values and the length of a row only, not on strides, on the
number of rows or on what ran before.

Orders: `add` is NumPy's pairwise summation of a contiguous row: rows shorter than 8 left to right;
up to 128 elements in 8 interleaved partial sums combined as ((0+1)+(2+3))+((4+5)+(6+7)); longer
rows are halved (at a multiple of 8) and the halves added. All other operators fold from left to
right.

Not modelled: the order of the hardware's adder tree, which isn't documented; a sum differs from a
device's in the last bits. `subtract` as a reduction (legal, never explained) is x0 - x1 - x2 - ...

Follows: AWS Neuron SDK, `nki/api/nki/isa/__init__.py` (tensor_reduce, tensor_partition_reduce,
activate2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from nki_dist.errors import NkiValidationError
from nki_dist.isa.alu import AluOp

Reducer = Callable[[np.ndarray], np.ndarray]


def _ufunc(ufunc: np.ufunc) -> Reducer:
    return lambda a: ufunc.reduce(a, axis=-1)


def _truth(ufunc: np.ufunc) -> Reducer:
    return lambda a: ufunc.reduce(np.not_equal(a, 0), axis=-1)


def _average(a: np.ndarray) -> np.ndarray:
    return np.add.reduce(a, axis=-1) / np.float32(a.shape[-1])


def _by_magnitude(a: np.ndarray, sign: int) -> np.ndarray:
    """Left fold of abs_max (sign 1) or abs_min (sign -1).

    A NaN loses against its successor and beats everything before it, so what precedes the last NaN
    of a row can't be the result; of the rest it is the last one with the extreme magnitude. The
    bits of |x| order as integers like |x| itself.
    """
    nan = np.isnan(a)[..., ::-1]
    alive = np.logical_not(np.logical_or.accumulate(nan, axis=-1))
    alive[..., 0] = True
    backwards = a[..., ::-1]
    key = np.absolute(backwards).view(np.uint32).astype(np.int64)
    key = np.where(alive, sign * key, np.iinfo(np.int64).min)
    at = np.argmax(key, axis=-1, keepdims=True)
    return np.take_along_axis(backwards, at, axis=-1)[..., 0]


def _abs_max(a: np.ndarray) -> np.ndarray:
    return _by_magnitude(a, 1)


def _abs_min(a: np.ndarray) -> np.ndarray:
    return _by_magnitude(a, -1)


_F32: Final[Mapping[str, Reducer]] = MappingProxyType(
    {
        "add": _ufunc(np.add),
        "subtract": _ufunc(np.subtract),
        "multiply": _ufunc(np.multiply),
        "maximum": _ufunc(np.maximum),
        "minimum": _ufunc(np.minimum),
        "logical_and": _truth(np.logical_and),
        "logical_or": _truth(np.logical_or),
        "logical_xor": _truth(np.logical_xor),
        "abs_max": _abs_max,
        "abs_min": _abs_min,
        "average": _average,
    }
)

_INTEGER: Final[Mapping[str, np.ufunc]] = MappingProxyType(
    {
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "maximum": np.maximum,
        "minimum": np.minimum,
    }
)


def reduce_f32(op: AluOp, a: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Reduce the last axis of float32 `a` (..., N), N >= 1, with `op`.

    Returns shape (...), float32; written into `out` (same shape) if given.

    Raises:
        NkiValidationError: `op` isn't a reduction in float32.
    """
    reducer = _F32.get(op.name)
    if reducer is None:
        raise NkiValidationError(
            f"{op.name} doesn't reduce; float32 reductions: {sorted(_F32)}",
            code="operator-no-reduction",
        )
    # On a strided row NumPy would be free to visit the elements in another order.
    result = reducer(np.ascontiguousarray(a)).astype(np.float32, copy=False)
    if out is None:
        return result
    np.copyto(out, result)
    return out


def reduce_integer(op: AluOp, a: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Reduce the last axis of integer `a` (..., N), N >= 1, keeping its dtype; sums wrap.

    Raises:
        NkiValidationError: `op` isn't a reduction on integers.
    """
    ufunc = _INTEGER.get(op.name)
    if ufunc is None:
        known = sorted(_INTEGER)
        raise NkiValidationError(
            f"{op.name} doesn't reduce integers; those that do: {known}",
            code="operator-no-reduction",
        )
    # Without the dtype NumPy widens a sum of narrow integers.
    result = ufunc.reduce(a, axis=-1, dtype=a.dtype)
    if out is None:
        return result
    np.copyto(out, result)
    return out
