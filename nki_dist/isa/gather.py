"""Rows addressed by a vector offset: the part DMA instructions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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
            f"{name} is an .indirect() view; DMA instructions take .ap(vector_offset=...) in HBM",
            code="indirect-view",
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
            "offset per row (only dma_transpose takes several columns)",
            code="vector-offset",
            numbers={"got": index.shape, "allowed": (a.shape[0], 1)},
        )
    if index.shape[0] != a.shape[0]:
        raise NkiValidationError(
            f"{name} has {a.shape[0]} rows, its vector offset {index.shape[0]}",
            code="vector-offset",
            numbers={"got": index.shape[0], "allowed": a.shape[0]},
        )


class Runs:
    """Where the rows of a vector offset lie in their storage, in elements, in DMA's pieces.

    A row may have several dimensions; what is next to each other in the last one is a run, which
    DMA moves whole or not at all (isa.transfers).

    Attributes:
        count: runs of a row.
        length: elements of a run.
    """

    def __init__(self, a: Access) -> None:
        assert a.dynamic is not None
        shape, strides = a.shape[1:], a.strides[1:]
        self.length = 1
        if shape and strides[-1] == 1:
            self.length, shape = shape[-1], shape[:-1]
        within = np.zeros(1, np.int64)
        for n, stride in zip(shape, strides):
            within = np.add.outer(within, np.arange(n, dtype=np.int64) * stride)
        self.count = within.size
        self._within = within.reshape(-1) + a.offset
        self._stride, self._limit = a.dynamic.stride, a.dynamic.limit
        self._last = a.storage.nbytes // a.dtype.itemsize - self.length

    def starts(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first element, whether it is inside) of every run of these rows, one after the other."""
        starts = np.add.outer(index * self._stride, self._within)
        chosen = (index >= 0) & (index < self._limit)
        inside = (starts >= 0) & (starts <= self._last) & chosen[:, np.newaxis]
        return starts.reshape(-1), inside.reshape(-1)

    def always_inside(self) -> bool:
        """Whether every valid index chooses a row that is inside."""
        return bool(self.starts(np.array([0, self._limit - 1]))[1].all())


class Rows(NamedTuple):
    """What a vector offset may choose from, and what it chooses now.

    Attributes:
        table: everything that can be chosen, an array (places, *row).
        shape: of all rows that are moved, (rows, *row); as many elements as the access.
        read: looks the offsets up: (places, mask of the rows kept or None for all).
        overlap: different places may share elements.
    """

    table: np.ndarray
    shape: tuple[int, ...]
    read: Callable[[], tuple[np.ndarray, np.ndarray | None]]
    overlap: bool


def indices_of(a: Access, kit: Kit) -> Callable[[], np.ndarray]:
    """A function that reads the offsets of all rows; index tiles go column by column."""
    assert a.dynamic is not None
    source, rows = kit.view(a.dynamic.source), a.shape[0]
    columns = source.reshape(len(source), -1).T
    return lambda: columns.reshape(-1)[:rows].astype(np.int64)


def chosen_rows(a: Access, kit: Kit, mode: oob_mode, what: str = "rows") -> Rows:
    """The rows of an access with a vector offset.

    Where an index that is valid can choose a row that partly leaves the tensor, rows are taken
    apart into runs, so that `oob_mode.skip` moves those inside.

    Args:
        what: how messages call the rows.

    Its `read` raises OutOfBoundsError for a row that is outside and not to be skipped.
    """
    assert a.dynamic is not None
    stride, limit, look = a.dynamic.stride, a.dynamic.limit, indices_of(a, kit)
    runs = Runs(a)
    whole = runs.always_inside()
    length = runs.length
    called, place = ("vector offset", "partition") if what == "rows" else ("index", "number")

    def refused(index: np.ndarray, valid: np.ndarray) -> OutOfBoundsError:
        n = int(np.flatnonzero(~valid)[0])
        row, run = (n, 0) if whole else divmod(n, runs.count)
        value = int(index[row])
        assert a.dynamic is not None
        if not 0 <= value < limit:
            return OutOfBoundsError(
                f"{called} {value} ({place} {row}) is outside [0, {limit}) of {a.storage.label}",
                code="data-index-range",
                numbers={"got": value, "least": 0, "most": limit - 1},
            )
        start = int(runs.starts(index[row : row + 1])[0][run])
        size = a.storage.nbytes // a.dtype.itemsize
        return OutOfBoundsError(
            f"{called} {value} ({place} {row}) chooses {runs.count} rows of {a.storage.label}, of "
            f"which row {run} would be elements [{start}, {start + length}) of {size}",
            code="data-index-range",
            numbers={"got": value, "start": start, "stop": start + length, "size": size},
        )

    def read() -> tuple[np.ndarray, np.ndarray | None]:
        index = look()
        valid = (index >= 0) & (index < limit)
        if valid.all():
            return index, None
        if mode is oob_mode.skip:
            return index[valid], valid
        raise refused(index, valid)

    def read_runs() -> tuple[np.ndarray, np.ndarray | None]:
        index = look()
        starts, valid = runs.starts(index)
        if valid.all():
            return starts, None
        if mode is oob_mode.skip:
            return starts[valid], valid
        raise refused(index, valid)

    if whole:
        every = Access(
            a.storage, a.offset, (limit, *a.shape[1:]), (stride, *a.strides[1:]), a.dtype
        )
        extent = sum((n - 1) * abs(s) for n, s in zip(a.shape[1:], a.strides[1:])) + 1
        return Rows(kit.view(every), a.shape, read, extent > stride)
    places = a.storage.nbytes // a.dtype.itemsize - length + 1
    every = Access(a.storage, 0, (places, length), (1, 1), a.dtype)
    return Rows(kit.view(every), (a.shape[0] * runs.count, length), read_runs, True)
