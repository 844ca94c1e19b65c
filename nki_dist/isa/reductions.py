"""Reductions over the last axis with an ALU operator, in a defined order.

Invariant: the result depends on the values of a row only, not on strides, on the number of rows or
on what ran before.

Orders: every operator folds from left to right, x0 + x1 + x2 + ..., rounded to float32 after each
step. That is how `tensor_reduce` adds float32 on trn1 devices, bit for bit (docs/numbers.md), and
how activate2's documentation and the architecture guide write the accumulators of the engines.
`subtract` as a reduction (legal, never explained) is x0 - x1 - x2 - ...

Follows: AWS Neuron SDK, `nki/api/nki/isa/__init__.py` (tensor_reduce, tensor_partition_reduce,
activate2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from nki_dist.errors import invalid
from nki_dist.isa.alu import ALU, AluOp
from nki_dist.ops.function import function

Reducer = Callable[[np.ndarray], np.ndarray]

# Which way of adding is the fastest (bench/README.md); results are the same.
FEW: Final = 32  # rows that are too few to be added side by side
SHORT: Final = 16  # elements of rows that can all be added side by side
BLOCK: Final = 512  # otherwise so many, for whose elements there is room in a cache
SUMS: Final = frozenset({"add", "average"})  # operators that add rows side by side

# NumPy folds and accumulates with these in order, but for sums of rows.
FOLDS: Final[Mapping[str, np.ufunc]] = MappingProxyType(
    {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
)


def _ufunc(ufunc: np.ufunc) -> Reducer:
    return lambda a: ufunc.reduce(a, axis=-1)


def _truth(ufunc: np.ufunc) -> Reducer:
    return lambda a: ufunc.reduce(np.not_equal(a, 0), axis=-1)


def running_sum(a: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Sums of float32 rows (..., N) from first to last element, without NumPy's pairwise order.

    Returns shape (...); written into `out` if given, which must share nothing with `a`.

    Rows are added side by side, a column of many rows after the other, because additions of one row
    wait for each other.
    """
    rows = a.reshape(-1, a.shape[-1])
    result = np.empty(a.shape[:-1], a.dtype) if out is None else out
    total = result.reshape(-1)  # a copy if `out` isn't contiguous
    if len(rows) <= BLOCK or a.shape[-1] <= SHORT:
        _add_up(rows, total)
    else:
        for first in range(0, len(rows), BLOCK):
            _add_up(rows[first : first + BLOCK], total[first : first + BLOCK])
    if not total.all():  # both ways begin with 0, which takes the sign off a row of -0.0
        zero = np.flatnonzero(total == 0)
        total[zero[np.signbit(rows[zero]).all(axis=1)]] = -0.0
    if not np.may_share_memory(total, result):
        np.copyto(result, total.reshape(result.shape))
    return result


def _add_up(rows: np.ndarray, total: np.ndarray) -> None:
    if len(rows) < FEW:
        # Differences aren't pairwise; 0 - x0 - x1 - ... is the sum with the sign changed.
        np.subtract.reduce(rows, axis=1, initial=np.float32(0), out=total)
        np.subtract(np.float32(0), total, total)
        return
    # In Fortran's order rows come fastest: all first elements, all second ones, ...
    np.einsum("pj->p", rows, order="F", out=total)


def _average(a: np.ndarray) -> np.ndarray:
    return running_sum(a) / np.float32(a.shape[-1])


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
    key = np.absolute(backwards).view(f"u{a.dtype.itemsize}").astype(np.int64)
    key = np.where(alive, sign * key, np.iinfo(np.int64).min)
    at = np.argmax(key, axis=-1, keepdims=True)
    return np.take_along_axis(backwards, at, axis=-1)[..., 0]


_F32: Final[Mapping[str, Reducer]] = MappingProxyType(
    {
        "add": running_sum,
        "subtract": _ufunc(np.subtract),
        "multiply": _ufunc(np.multiply),
        "maximum": _ufunc(np.maximum),
        "minimum": _ufunc(np.minimum),
        "logical_and": _truth(np.logical_and),
        "logical_or": _truth(np.logical_or),
        "logical_xor": _truth(np.logical_xor),
        "abs_max": partial(_by_magnitude, sign=1),
        "abs_min": partial(_by_magnitude, sign=-1),
        "average": _average,
    }
)

_INTEGER: Final[Mapping[str, np.ufunc]] = MappingProxyType(
    {
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
        "subtract": np.subtract,
        **FOLDS,
    }
)


def reduce_f32(op: AluOp, a: np.ndarray) -> np.ndarray:
    """Reduce the last axis of float32 `a` (..., N), N >= 1, with `op`: shape (...), float32.

    Raises:
        NkiValidationError: `op` isn't a reduction in float32.
    """
    reducer = _F32.get(op.name)
    if reducer is None:
        message = f"{op.name} doesn't reduce; float32 reductions: {sorted(_F32)}"
        raise invalid(message, code="operator-no-reduction")
    if op.name not in SUMS:
        # On a strided row NumPy would be free to visit the elements in another order.
        a = np.ascontiguousarray(a)
    return reducer(a).astype(a.dtype, copy=False)


def reduce_integer(op: AluOp, a: np.ndarray) -> np.ndarray:
    """Reduce the last axis of integer `a` (..., N), N >= 1, keeping its dtype; sums wrap.

    Raises:
        NkiValidationError: `op` isn't a reduction on integers.
    """
    ufunc = _INTEGER.get(op.name)
    if ufunc is None:
        message = f"{op.name} doesn't reduce integers; those that do: {sorted(_INTEGER)}"
        raise invalid(message, code="operator-no-reduction")
    # Without the dtype NumPy widens a sum of narrow integers.
    return np.asarray(ufunc.reduce(a, axis=-1, dtype=a.dtype))


@function(reads="a", writes="out")
def reduce(operator: str, a: np.ndarray, out: np.ndarray) -> None:
    """`reduce_f32`, by the operator's name."""
    if operator == "add":
        running_sum(a, out)
    else:
        np.copyto(out, reduce_f32(ALU[operator], a))


@function(reads="a", writes="out", name="reduce integers")
def reduce_integers(operator: str, a: np.ndarray, out: np.ndarray) -> None:
    """`reduce_integer`, by the operator's name."""
    np.copyto(out, reduce_integer(ALU[operator], a))
