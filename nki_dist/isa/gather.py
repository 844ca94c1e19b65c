"""Rows addressed by a vector offset: the part DMA instructions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_dist.errors import NkiValidationError, OutOfBoundsError
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.kit import Kit
from nki_dist.program import Access


def has_vector(a: Access) -> bool:
    """Whether rows are addressed by a vector offset."""
    return a.dynamic is not None and a.dynamic.kind == "vector"


def refuse_indirection(name: str, a: Access) -> None:
    """DMA follows vector offsets into HBM, not the `.indirect()` views of on-chip tensors."""
    if a.dynamic is not None and a.dynamic.kind == "tensor":
        raise NkiValidationError(
            f"{name} is an .indirect() view; DMA instructions take .ap(vector_offset=...) in HBM"
        )


def check_rows(name: str, a: Access) -> None:
    """One offset per row, where the order of several columns isn't documented."""
    if not has_vector(a):
        return
    assert a.dynamic is not None
    index = a.dynamic.source
    if index.free_size != 1:
        raise NkiValidationError(
            f"the vector offset of {name} has shape {index.shape}; allowed: ({a.shape[0]}, 1), one "
            "offset per row (only dma_transpose takes several columns)"
        )
    if index.shape[0] != a.shape[0]:
        raise NkiValidationError(
            f"{name} has {a.shape[0]} rows, its vector offset {index.shape[0]}"
        )


def row_count(a: Access) -> int:
    """How many rows a vector offset may choose from: in its dimension, and inside the storage.

    The pattern may begin anywhere in the tensor, so fewer rows can be left than the dimension has.
    """
    assert a.dynamic is not None
    stride, limit = a.dynamic.stride, a.dynamic.limit
    row = Access(a.storage, a.offset, (1, *a.shape[1:]), a.strides, a.dtype)
    return max(0, min(limit, row.starts(stride))) if stride > 0 else limit


def row_table(a: Access, kit: Kit) -> np.ndarray:
    """Every row a vector offset can select, as an array (rows, ...)."""
    assert a.dynamic is not None
    shape, strides = (row_count(a), *a.shape[1:]), (a.dynamic.stride, *a.strides[1:])
    return kit.view(Access(a.storage, a.offset, shape, strides, a.dtype))


def row_indices(
    a: Access, kit: Kit, mode: oob_mode
) -> Callable[[], tuple[np.ndarray, np.ndarray | None]]:
    """A function that reads the offsets: (valid indices, mask of rows kept or None for all)."""
    assert a.dynamic is not None
    source = kit.view(a.dynamic.source)
    limit = row_count(a)
    shown = a.storage.label

    def read() -> tuple[np.ndarray, Any]:
        index = source.reshape(-1).astype(np.int64)
        valid = (index >= 0) & (index < limit)
        if valid.all():
            return index, None
        if mode is oob_mode.skip:
            return index[valid], valid
        bad = int(np.flatnonzero(~valid)[0])
        raise OutOfBoundsError(
            f"vector offset {int(index[bad])} (partition {bad}) is outside [0, {limit}) of "
            f"{shown}; oob_mode.skip would leave such rows alone"
        )

    return read
