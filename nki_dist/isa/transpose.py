"""Transposes as moves of bits: what nc_matmul's transpose mode and nc_transpose share.

Invariant: no element is multiplied, so NaN and infinity stay where they are. Doesn't model the
transpose of NeuronCore-v2's Tensor engine, which multiplies (see nc_transpose, nc_matmul).
"""

from __future__ import annotations

import functools
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.casts import converter
from nki_dist.dtypes.tables import frozen
from nki_dist.errors import invalid
from nki_dist.isa.kit import Array, Kit, overlaps
from nki_dist.isa.matmul import flat
from nki_dist.ops.function import conversion, copy, function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction

Matrix: TypeAlias = "np.ndarray[Any, Any]"

# Elements of a column that lie a multiple of these bytes apart share few places of a cache: reading
# 128 columns of 16 bits out of 512 takes twice as long as copying them first.
CROWDED: Final = 512


def _source(data: Access, kit: Kit) -> tuple[Array, list[Operation]]:
    """The bits of a tile as a matrix (P, F)."""
    view = flat(data)
    apart = data.strides[0] * data.dtype.itemsize
    if view is not None and (apart % CROWDED or apart == data.free_size * data.dtype.itemsize):
        return kit.raw(view), []
    bits = kit.scratch(data.shape, data.dtype.raw)
    return bits.reshape(data.shape[0], -1), [op(copy, bits, kit.raw(data))]


def _moved(dst: Access, src: Access, out: Array, bits: Array, kit: Kit) -> Operation:
    """What puts bits of `src`'s dtype into an array of `dst`'s storage dtype."""
    if dst.dtype is src.dtype or _pads(dst.dtype, src.dtype):
        return op(copy, out.view(dst.dtype.raw), bits)
    return op(kit.convert(src.dtype, dst.dtype), out, bits.view(src.dtype.storage))


def _pads(dst: DType, src: DType) -> bool:
    """The Tensor engine pads a transposed FP8 element with a zero byte, it doesn't convert."""
    return src.bits == 8 and dst.bits == 16


def transpose(dst: Access, data: Access, kit: Kit) -> list[Operation]:
    """`dst[f, p] = data[p, f]`, free dimensions flattened; dst may overlap data."""
    bits, ops = _source(data, kit)
    into = flat(dst)
    same = data.storage is dst.storage and (data.same_elements(dst) or overlaps(data, dst))
    if into is not None and not same:
        return [*ops, _moved(dst, data, kit.view(into), bits.T, kit)]
    result = kit.scratch((dst.shape[0], dst.free_size), dst.dtype.storage)
    back = op(copy, kit.raw(dst), result.view(dst.dtype.raw).reshape(dst.shape))
    return [*ops, _moved(dst, data, result, bits.T, kit), back]


def select_columns(i: Instruction, kit: Kit) -> list[Operation]:
    """nc_matmul with is_transpose: `dst[m, n] = stationary[k, m]` where `moving[k, n]` is 1."""
    dst, data, moving = i["dst"], i["stationary"], i["moving"]
    bits, ops = _source(data, kit)
    target = kit.raw(flat(dst) or dst)
    dtypes = data.dtype, moving.dtype, dst.dtype
    return [*ops, op(_select, bits, kit.view(moving), *dtypes, target)]


@function(reads="bits moving", writes="target", raises=True, name="select columns")
def _select(
    bits: Matrix, moving: Matrix, src: DType, moving_dtype: DType, dst: DType, target: Matrix
) -> None:
    """`target[m, n] = bits[k, m]` where `moving[k, n]` is 1, bits as `_moved` moves them."""
    selector = moving.reshape(len(moving), -1)
    if len(selector) == selector.shape[1] and np.array_equal(
        selector.view(moving_dtype.raw), _identity(len(selector), moving_dtype)
    ):
        picked = bits
    else:
        index, empty = _columns(selector, moving_dtype)
        picked = bits[index]
        picked[empty] = 0
    if dst is src and target.ndim == 2 and not np.may_share_memory(target, bits):
        np.copyto(target, picked.T)
        return
    result = np.empty((len(target), target.size // len(target)), dst.storage)
    if dst is src or _pads(dst, src):
        np.copyto(result.view(dst.raw), picked.T)
    else:
        conversion(src, dst)(result, picked.T.view(src.storage))
    np.copyto(target, result.view(dst.raw).reshape(target.shape))


@functools.cache
def identity_matrix(size: int) -> Matrix:
    """A float32 identity matrix, not to be written to."""
    return frozen(np.eye(size, dtype=np.float32))


@functools.cache
def _identity(size: int, dtype: DType) -> Matrix:
    """Bits of an identity matrix."""
    matrix = np.empty((size, size), dtype.storage)
    converter(float32, dtype)(matrix, identity_matrix(size))
    return frozen(matrix.view(dtype.raw))


def _columns(selector: Matrix, dtype: DType) -> tuple[Matrix, Matrix]:
    """Which row each column picks, and which columns are empty."""
    values = np.empty(selector.shape, np.float32)
    converter(dtype, float32)(values, selector)
    table = values.reshape(len(values), -1)
    marks = table != 0
    marked = marks.sum(axis=0)
    bad = np.flatnonzero((marked > 1) | (marks & (table != 1)).any(axis=0))
    if bad.size:
        n = int(bad[0])
        message = (
            f"is_transpose moves data: every column of moving holds one 1 and otherwise 0; column "
            f"{n} has {int(marked[n])} elements other than 0, the largest {table[:, n].max()}"
        )
        raise invalid(message, code="permutation-matrix", column=n, got=int(marked[n]), allowed=1)
    return marks.argmax(axis=0), marked == 0
