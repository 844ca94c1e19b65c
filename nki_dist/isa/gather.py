"""Rows addressed by a vector offset: the part DMA instructions share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from nki_dist.codes.picture import outside
from nki_dist.errors import OutOfBoundsError, invalid
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.kit import Array, Kit
from nki_dist.program import Access


def has_vector(a: Access) -> bool:
    """Whether rows are addressed by a vector offset."""
    return a.dynamic is not None and a.dynamic.kind == "vector"


def refuse_indirection(name: str, a: Access) -> None:
    """DMA follows vector offsets into HBM, not the `.indirect()` views of on-chip tensors."""
    if a.dynamic is not None and a.dynamic.kind == "tensor":
        raise invalid(
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
        message = (
            f"the vector offset of {name} has shape {index.shape}; allowed: ({a.shape[0]}, 1), one "
            "offset per row (only dma_transpose takes several columns)"
        )
        raise invalid(message, code="vector-offset", got=index.shape, allowed=(a.shape[0], 1))
    if index.shape[0] != a.shape[0]:
        message = f"{name} has {a.shape[0]} rows, its vector offset {index.shape[0]}"
        raise invalid(message, code="vector-offset", got=index.shape[0], allowed=a.shape[0])


@dataclass(frozen=True)
class Runs:
    """Where the rows of a vector offset lie in their storage, in elements, in DMA's pieces.

    A row may have several dimensions; what is next to each other in the last one is a run, which
    DMA moves whole or not at all (isa.transfers).

    Attributes:
        count: runs of a row.
        length: elements of a run.
        last: where a run can begin at most.
        within: where the runs of row 0 begin, as bytes of an int64 array.
    """

    count: int
    length: int
    stride: int = field(repr=False)
    limit: int = field(repr=False)
    last: int = field(repr=False)
    within: bytes = field(repr=False)

    @classmethod
    def of(cls, a: Access) -> Runs:
        assert a.dynamic is not None
        shape, strides, length = a.shape[1:], a.strides[1:], 1
        if shape and strides[-1] == 1:
            length, shape = shape[-1], shape[:-1]
        within = np.full(1, a.offset, np.int64)
        for n, stride in zip(shape, strides):
            within = np.add.outer(within, np.arange(n, dtype=np.int64) * stride)
        last = a.storage.nbytes // a.dtype.itemsize - length
        of = a.dynamic
        return cls(within.size, length, of.stride, of.limit, last, within.tobytes())

    def starts(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(first element, whether it is inside) of every run of these rows, one after the other."""
        starts = np.add.outer(index * self.stride, np.frombuffer(self.within, np.int64))
        chosen = (index >= 0) & (index < self.limit)
        inside = (starts >= 0) & (starts <= self.last) & chosen[:, np.newaxis]
        return starts.reshape(-1), inside.reshape(-1)

    def always_inside(self) -> bool:
        """Whether every valid index chooses a row that is inside."""
        return bool(self.starts(np.array([0, self.limit - 1]))[1].all())


@dataclass(frozen=True)
class Chosen:
    """What a vector offset chooses: the part that is known before it is looked up.

    Attributes:
        rows: of the access.
        shape: of all rows that are moved, (rows, *row); as many elements as the access.
        limit: places that there are.
        runs: of rows that are taken apart into runs, None where they are moved whole.
        skip: rows outside are left out; else they are an error.
        label: how messages call the tensor.
        size: elements of the tensor.
        columns: the offsets are those of columns.
    """

    rows: int
    shape: tuple[int, ...]
    limit: int
    runs: Runs | None
    skip: bool
    label: str
    size: int
    columns: bool

    def read(self, source: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Places in the table, and a mask of the rows kept or None for all.

        Args:
            source: the tile with the offsets, which go column by column.

        Raises:
            OutOfBoundsError: a row is outside and not to be left out.
        """
        index = indices(source, self.rows)
        if self.runs is None:
            places, valid = index, (index >= 0) & (index < self.limit)
        else:
            places, valid = self.runs.starts(index)
        if valid.all():
            return places, None
        if not self.skip:
            raise self._refused(index, valid)
        return places[valid], valid

    def _picture(self, index: np.ndarray) -> dict[str, Any]:
        inside = (index >= 0) & (index < self.limit)
        shape = (1, self.limit) if self.columns else (self.limit, 1)
        ranges = [(k, k + 1) for k in (*index[~inside], *index[inside])]
        return outside(self.label, shape, int(self.columns), ranges)

    def _refused(self, index: np.ndarray, valid: np.ndarray) -> OutOfBoundsError:
        called, place = ("index", "number") if self.columns else ("vector offset", "partition")
        n, runs = int(np.flatnonzero(~valid)[0]), self.runs
        row, run = (n, 0) if runs is None else divmod(n, runs.count)
        value = int(index[row])
        if runs is None or not 0 <= value < self.limit:
            return OutOfBoundsError(
                f"{called} {value} ({place} {row}) is outside [0, {self.limit}) of {self.label}",
                code="data-index-range",
                numbers={"got": value, "least": 0, "most": self.limit - 1},
                picture=self._picture(index),
            )
        start = int(runs.starts(index[row : row + 1])[0][run])
        end, size = start + runs.length, self.size
        return OutOfBoundsError(
            f"{called} {value} ({place} {row}) chooses {runs.count} rows of {self.label}, of which "
            f"row {run} would be elements [{start}, {end}) of {size}",
            code="data-index-range",
            numbers={"got": value, "start": start, "stop": end, "size": size},
        )


class Rows(NamedTuple):
    """What a vector offset may choose from.

    Attributes:
        table: everything that can be chosen, an array (places, *row).
        source: the tile with the offsets.
        choice: which of them are chosen.
        overlap: different places may share elements.
    """

    table: Array
    source: Array
    choice: Chosen
    overlap: bool


def indices(source: np.ndarray, rows: int) -> np.ndarray:
    """The offsets of all rows; index tiles go column by column."""
    return source.reshape(len(source), -1).T.reshape(-1)[:rows].astype(np.int64)


def chosen_rows(a: Access, kit: Kit, mode: oob_mode, columns: bool = False) -> Rows:
    """The rows of an access with a vector offset.

    Where an index that is valid can choose a row that partly leaves the tensor, rows are taken
    apart into runs, so that `oob_mode.skip` moves those inside.

    Args:
        columns: messages call them columns.
    """
    assert a.dynamic is not None
    stride, limit, source = a.dynamic.stride, a.dynamic.limit, kit.view(a.dynamic.source)
    runs = Runs.of(a)
    size = a.storage.nbytes // a.dtype.itemsize
    skip, label = mode is oob_mode.skip, kit.name(a)
    if runs.always_inside():
        every = Access(
            a.storage, a.offset, (limit, *a.shape[1:]), (stride, *a.strides[1:]), a.dtype
        )
        extent = sum((n - 1) * abs(s) for n, s in zip(a.shape[1:], a.strides[1:])) + 1
        choice = Chosen(a.shape[0], a.shape, limit, None, skip, label, size, columns)
        return Rows(kit.view(every), source, choice, extent > stride)
    every = Access(a.storage, 0, (size - runs.length + 1, runs.length), (1, 1), a.dtype)
    shape = (a.shape[0] * runs.count, runs.length)
    choice = Chosen(a.shape[0], shape, limit, runs, skip, label, size, columns)
    return Rows(kit.view(every), source, choice, True)


def put_rows(table: np.ndarray, places: np.ndarray, rows: np.ndarray, overlap: bool) -> None:
    """Write rows in order, so that of two for one place the later one stays."""
    if not overlap and len(set(places.tolist())) == len(places):
        table[places] = rows
    else:
        for n, row in zip(places.tolist(), rows):
            table[n] = row
