"""Rows of a tile as contiguous float32, for instructions that work along the free dimensions.

Invariant: what reads a row sees its elements in order and contiguous, so results depend on values
and shape only, not on where a tile lies.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.isa.kit import Array, Kit
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, is_contiguous, op
from nki_dist.program import Access

# Elements a row's length apart share few places of a cache if that is a multiple of these bytes.
CROWDED: Final = 512
GAP: Final = 16  # elements between rows that aren't to be so


def load_rows(
    kit: Kit, a: Access, reduced: int | None = None, compute: DType = float32, spread: bool = False
) -> tuple[Array, list[Operation]]:
    """A tile as a contiguous array (P, kept, row), and what fills it.

    Args:
        reduced: how many trailing dimensions make up a row; all free ones by default.
        spread: the rows are read side by side; they may lie apart, and only each is contiguous.
    """
    cut = 1 if reduced is None else len(a.shape) - reduced
    shape = (a.shape[0], prod(a.shape[1:cut]), prod(a.shape[cut:]))
    view = kit.view(a)
    if a.dtype is compute and is_contiguous(view) and not (spread and crowded(shape)):
        return view.reshape(shape), []
    array = scratch_rows(kit, shape, compute.storage, spread)
    return array, [op(kit.convert(a.dtype, compute), array.reshape(a.shape), view)]


def crowded(shape: tuple[int, ...]) -> bool:
    """Whether contiguous float32 rows (..., N), read side by side, get into each other's way."""
    return shape[-1] * 4 % CROWDED == 0 and prod(shape[:-1]) >= 32


def scratch_rows(kit: Kit, shape: tuple[int, ...], dtype: Any, spread: bool) -> Array:
    """Scratch for rows (..., N), each contiguous; if they are to be spread, with gaps if needed."""
    gap = GAP if spread and crowded(shape) else 0
    return kit.scratch((*shape[:-1], shape[-1] + gap), dtype)[..., : shape[-1]]


def private_rows(kit: Kit, a: Access) -> tuple[Array, Operation]:
    """A copy of a tile as (P, N), free to be overwritten, and what makes it."""
    array, filled = kit.copied(a)
    return array.reshape(a.shape[0], -1), filled


def flat_rows(kit: Kit, array: Array) -> tuple[Array, list[Operation]]:
    """An array (P, ...) as contiguous (P, N), and what copies it if that has to be."""
    if is_contiguous(array):
        return array.reshape(array.shape[0], -1), []
    result = kit.scratch(array.shape, array.dtype)
    return result.reshape(array.shape[0], -1), [op(copy, result, array)]


def column(kit: Kit, value: Any) -> tuple[Any, list[Operation]]:
    """A number as float32, or a (P, 1) tile as a (P, 1) float32 array."""
    if not isinstance(value, Access):
        return np.float32(value), []
    array, steps = load_rows(kit, value)
    return array.reshape(value.shape[0], 1), steps
