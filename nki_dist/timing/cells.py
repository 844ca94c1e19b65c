"""Who touched these bytes last: the index that finds an access's dependencies.

Every distinct box of a territory is a cell that remembers the accesses made to exactly that box and
which other cells overlap it. Geometry is only done when a box is seen for the first time; kernels
come back to the same boxes, so an access costs a walk over a few neighbours.

Invariant: every access that a new one conflicts with is an ancestor of it in the graph of edges
returned so far, or among the edges returned. A write hides what the cells it covers remember,
because whatever overlaps one of those overlaps the write's own cell as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nki_dist.timing.footprint import Box

_SCAN: Final = 24  # cells up to which a Python loop is faster than NumPy
_CROWDED: Final = 32  # accesses remembered by one cell before looking for those that are implied


class Cell:
    """One box: the accesses made to it that no later write hides."""

    __slots__ = ("box", "near", "reads", "writes")

    def __init__(self, box: Box) -> None:
        self.box = box
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.near: list[tuple[Cell, bool]] = [(self, True)]


class Cells:
    """The cells of one territory."""

    def __init__(self) -> None:
        self._by_box: dict[Box, Cell] = {}
        self._cells: list[Cell] = []
        self._bounds: np.ndarray | None = None

    def cell(self, box: Box) -> Cell:
        """The cell of a box, made and connected to those it overlaps if it is new."""
        found = self._by_box.get(box)
        if found is None:
            found = self._by_box[box] = Cell(box)
            for other in self._overlapping(box):
                found.near.append((other, _covers(box, other.box)))
                other.near.append((found, _covers(other.box, box)))
            self._cells.append(found)
        return found

    def _overlapping(self, box: Box) -> list[Cell]:
        if len(self._cells) <= _SCAN:
            return [c for c in self._cells if overlap(c.box, box)]
        bounds = self._table(len(box))
        hits = np.ones(len(self._cells), bool)
        for d in range(0, len(box), 2):
            hits &= bounds[d] < box[d + 1]
            hits &= bounds[d + 1] > box[d]
        return [self._cells[n] for n in np.flatnonzero(hits)]

    def _table(self, width: int) -> np.ndarray:
        """Bounds of all cells, one column each; grown by doubling."""
        count = len(self._cells)
        table = self._bounds
        if table is None or table.shape[1] < count:
            table = np.zeros((width, 2 * count), np.int64)
            table[:, :count] = np.array([c.box for c in self._cells]).T
            self._bounds = table
        else:
            # Exactly the cells added since the last look are missing; zero-width columns mark them.
            for n in range(count - 1, -1, -1):
                if table[1, n]:
                    break
                table[:, n] = self._cells[n].box
        return table[:, :count]


def overlap(a: Box, b: Box) -> bool:
    return all(a[d] < b[d + 1] and b[d] < a[d + 1] for d in range(0, len(a), 2))


def _covers(a: Box, b: Box) -> bool:
    return all(a[d] <= b[d] and b[d + 1] <= a[d + 1] for d in range(0, len(a), 2))


def note_read(
    cell: Cell, at: int, data: set[int], ancestors: Callable[[set[int]], set[int]]
) -> None:
    """Access number `at` reads a cell; adds what it must wait for to `data`."""
    for other, _ in cell.near:
        data.update(other.writes)
    if len(cell.reads) >= _CROWDED:
        implied = ancestors(data)
        cell.reads = [r for r in cell.reads if r not in implied]
    cell.reads.append(at)


def note_write(cell: Cell, at: int, reuse: set[int]) -> None:
    """Access number `at` writes a cell; adds the reads and writes it must not overtake."""
    for other, covered in cell.near:
        reuse.update(other.writes)
        reuse.update(other.reads)
        if covered:
            other.writes.clear()
            other.reads.clear()
    cell.writes.append(at)
