"""Transposes as moves of bits: what nc_matmul's transpose mode and nc_transpose share.

Invariant: no element is multiplied, so NaN and infinity stay where they are. Doesn't model the
transpose of NeuronCore-v2's Tensor engine, which multiplies (see nc_transpose, nc_matmul).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.casts import converter
from nki_dist.errors import NkiValidationError
from nki_dist.isa._matmul import Matrix, flat
from nki_dist.isa.kit import Kit, Step, chain, overlaps
from nki_dist.program import Access, Instruction

# Elements of a column that lie a multiple of these bytes apart share few places of a cache: reading
# 128 columns of 16 bits out of 512 takes twice as long as copying them first.
CROWDED: Final = 512


def _source(data: Access, kit: Kit) -> tuple[Matrix, list[Step]]:
    """The bits of a tile as a matrix (P, F)."""
    view = flat(data)
    apart = data.strides[0] * data.dtype.itemsize
    if view is not None and (apart % CROWDED or apart == data.free_size * data.dtype.itemsize):
        return kit.raw(view), []
    bits = kit.scratch(data.shape, data.dtype.raw)
    return bits.reshape(data.shape[0], -1), [partial(np.copyto, bits, kit.raw(data))]


def _mover(dst: Access, src: Access) -> Callable[[Matrix, Matrix], None]:
    """Puts bits of `src`'s dtype into an array of `dst`'s storage dtype."""
    if dst.dtype is src.dtype:
        raw = dst.dtype.raw
        return lambda out, bits: np.copyto(out.view(raw), bits)
    if src.dtype.bits == 8 and dst.dtype.bits == 16:
        # The Tensor engine pads a transposed FP8 element with a zero byte, it doesn't convert.
        wide = dst.dtype.raw
        return lambda out, bits: np.copyto(out.view(wide), bits)
    convert, narrow = converter(src.dtype, dst.dtype), src.dtype.storage
    return lambda out, bits: convert(out, bits.view(narrow))


def transpose(dst: Access, data: Access, kit: Kit) -> Step:
    """`dst[f, p] = data[p, f]`, free dimensions flattened; dst may overlap data."""
    bits, steps = _source(data, kit)
    into = flat(dst)
    same = data.storage is dst.storage and (data.same_elements(dst) or overlaps(data, dst))
    if into is not None and not same and dst.dtype is data.dtype:
        return chain([*steps, partial(np.copyto, kit.raw(into), bits.T)])
    move = _mover(dst, data)
    if into is not None and not same:
        return chain([*steps, partial(move, kit.view(into), bits.T)])
    result = kit.scratch((dst.shape[0], dst.free_size), dst.dtype.storage)
    back = partial(np.copyto, kit.raw(dst), result.view(dst.dtype.raw).reshape(dst.shape))
    return chain([*steps, partial(move, result, bits.T), back])


def select_columns(i: Instruction, kit: Kit) -> Step:
    """nc_matmul with is_transpose: `dst[m, n] = stationary[k, m]` where `moving[k, n]` is 1."""
    dst, data, moving = i["dst"], i["stationary"], i["moving"]
    square = moving.free_size == moving.shape[0]
    identity = _identity(moving.shape[0], moving.dtype).reshape(moving.shape) if square else None
    whole = transpose(dst, data, kit) if square else None
    pattern, source, target = kit.raw(moving), kit.raw(data), kit.raw(dst)
    selector, move = kit.view(moving), _mover(dst, data)
    # Not the operands themselves: another instruction's step may be this one.
    wanted, shape, stored = moving.dtype, (dst.shape[0], dst.free_size), dst.dtype

    def run() -> None:
        if whole is not None and identity is not None and np.array_equal(pattern, identity):
            whole()
        else:
            index, empty = _columns(selector, wanted)
            picked = source.reshape(len(source), -1)[index]
            picked[empty] = 0
            result = np.empty(shape, stored.storage)
            move(result, picked.T)
            np.copyto(target, result.view(stored.raw).reshape(target.shape))

    return run


@functools.cache
def identity_matrix(size: int) -> Matrix:
    """A float32 identity matrix, not to be written to."""
    matrix = np.eye(size, dtype=np.float32)
    matrix.flags.writeable = False
    return matrix


@functools.cache
def _identity(size: int, dtype: DType) -> Matrix:
    """Bits of an identity matrix."""
    matrix = np.empty((size, size), dtype.storage)
    converter(float32, dtype)(matrix, identity_matrix(size))
    bits = matrix.view(dtype.raw)
    bits.flags.writeable = False
    return bits


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
        raise NkiValidationError(
            f"is_transpose moves data: every column of moving holds one 1 and otherwise 0; column "
            f"{n} has {int(marked[n])} elements other than 0, the largest {table[:, n].max()}",
            code="permutation-matrix",
            numbers={"column": n, "got": int(marked[n]), "allowed": 1},
        )
    return marks.argmax(axis=0), marked == 0
