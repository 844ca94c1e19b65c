"""Finds the earlier accesses to the same bytes that a new access has to wait for.

Every distinct box of a territory is a cell that remembers the accesses made to exactly that box and
which other cells overlap it. Geometry is only done when a box is seen for the first time; kernels
come back to the same boxes, so an access costs a walk over a few neighbours.

Invariant: every access that a new one conflicts with is an ancestor of it in the graph of edges
returned so far, or among the edges returned. A write hides what the cells it covers remember,
because whatever overlaps one of those overlaps the write's own cell as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from nki_dist.timing.footprint import Box

_Exponents: TypeAlias = tuple[int, ...]
_SCAN: Final = 24  # cells up to which looking at each is faster than a grid
_APART: Final = (
    1_000_003  # between the numbers of buckets that are neighbours in the outer dimension
)
_CROWDED: Final = 32  # accesses remembered by one cell before looking for those that are implied


class Cell:
    """One box: the accesses made to it that no later write hides.

    Attributes:
        near: other cells that overlap it, and whether it covers them. Not itself: most cells are
            alone.
    """

    __slots__ = ("box", "crowded", "near", "reads", "writes")

    def __init__(self, box: Box) -> None:
        self.box = box
        self.reads: list[int] = []
        self.writes: list[int] = []
        self.crowded = _CROWDED
        self.near: list[tuple[Cell, bool]] = []


class Cells:
    """The cells of one territory.

    From `_SCAN` cells on they are found by grids, one for each size of cell (rounded up to powers
    of two): a cell touches at most two buckets of its own grid in each dimension, so a look-up
    costs about as much as it finds, whatever sizes are mixed.
    """

    __slots__ = ("_by_box", "_grids")

    def __init__(self) -> None:
        self._by_box: dict[Box, Cell] = {}
        self._grids: dict[_Exponents, dict[int, list[Cell]]] = {}  # by exponents, by bucket

    def cell(self, box: Box) -> Cell:
        """The cell of a box, made and connected to those it overlaps if it is new."""
        found = self._by_box.get(box)
        if found is None:
            found = Cell(box)
            if self._by_box:
                self._connect(found)
            self._by_box[box] = found
        return found

    def part(self) -> None:
        """Let go of all cells: those that know each other would wait for the garbage collector."""
        for cell in self._by_box.values():
            cell.near.clear()
        self._by_box.clear()
        self._grids.clear()

    def _connect(self, new: Cell) -> None:
        box, near = new.box, new.near
        for other in self._overlapping(box):
            near.append((other, _covers(box, other.box)))
            other.near.append((new, _covers(other.box, box)))
        if self._grids:
            self._enter(new)
        elif len(self._by_box) == _SCAN:
            for cell in (*self._by_box.values(), new):
                self._enter(cell)

    def _overlapping(self, box: Box) -> list[Cell]:
        if not self._grids:
            return [c for c in self._by_box.values() if overlap(c.box, box)]
        found: list[Cell] = []
        for exponents, buckets in self._grids.items():
            touched = _touched(box, exponents, len(buckets))
            if len(touched) == 1:  # a cell is in a bucket once
                for c in buckets.get(touched[0], ()):
                    if overlap(c.box, box):
                        found.append(c)
            else:
                several = {id(c): c for at in touched or buckets for c in buckets.get(at, ())}
                found += [c for c in several.values() if overlap(c.box, box)]
        return found

    def _enter(self, cell: Cell) -> None:
        box = cell.box
        sides = zip(box[::2], box[1::2])
        exponents: _Exponents = tuple([(high - low - 1).bit_length() for low, high in sides])
        buckets = self._grids.get(exponents)
        if buckets is None:
            buckets = self._grids[exponents] = {}
        for at in _touched(box, exponents):
            if at in buckets:
                buckets[at].append(cell)
            else:
                buckets[at] = [cell]


def _touched(box: Box, exponents: _Exponents, most: int = 1 << 30) -> list[int]:
    """Numbers of the buckets that a box touches; none of them if there are more than `most`.

    Buckets far from each other may share a number: whoever looks there compares boxes anyway.
    """
    if len(box) == 2:
        first, last = box[0] >> exponents[0], (box[1] - 1) >> exponents[0]
        return (
            [first] if first == last else [*range(first, last + 1)] if last - first < most else []
        )
    found = [0]
    d = 0
    for exponent in exponents:
        first, last = box[d] >> exponent, (box[d + 1] - 1) >> exponent
        d += 2
        if first == last:
            if len(found) == 1:
                found[0] = found[0] * _APART + first
            else:
                found = [at * _APART + first for at in found]
        elif len(found) * (last - first + 1) > most:
            return []
        else:
            found = [at * _APART + n for at in found for n in range(first, last + 1)]
    return found


# Loops instead of all(): making a generator takes longer than most of these comparisons.


def overlap(a: Box, b: Box) -> bool:
    for d in range(0, len(a), 2):  # noqa: SIM110
        if a[d] >= b[d + 1] or b[d] >= a[d + 1]:
            return False
    return True


def _covers(a: Box, b: Box) -> bool:
    for d in range(0, len(a), 2):  # noqa: SIM110
        if a[d] > b[d] or b[d + 1] > a[d + 1]:
            return False
    return True


def note_read(
    cell: Cell, at: int, data: list[int], ancestors: Callable[[Iterable[int]], set[int]]
) -> None:
    """Access number `at` reads a cell; adds what it must wait for to `data`, some of it twice."""
    data += cell.writes
    for other, _ in cell.near:
        data += other.writes
    if len(cell.reads) >= cell.crowded:
        implied = ancestors(data)
        cell.reads = [r for r in cell.reads if r not in implied]
        cell.crowded = max(_CROWDED, 2 * len(cell.reads))  # so that looking is linear in the reads
    cell.reads.append(at)


def note_write(cell: Cell, at: int, reuse: list[int]) -> None:
    """Access number `at` writes a cell; adds the accesses it must not overtake, some twice."""
    reuse += cell.writes
    if cell.reads:
        reuse += cell.reads
        cell.reads = []
    cell.writes = [at]
    for other, covered in cell.near:
        reuse += other.writes
        reuse += other.reads
        if covered:
            other.writes = []
            other.reads = []
