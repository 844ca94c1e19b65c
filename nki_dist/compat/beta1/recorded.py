"""A traced kernel's instructions by position, and who touches which tile, for those who edit them.

Beta 1 unrolls its loops, so these are instructions in a row, and what is said about one tile is
said of the whole of its life. Positions are those of the trace; an instruction that is removed
leaves a hole, so positions stay true while instructions are removed or moved.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

from nki_dist.compiler.passes.elements import Elements, covers
from nki_dist.isa import INSTRUCTIONS
from nki_dist.ops.place import joined
from nki_dist.program import Access, Instruction, Storage


class Recorded:
    """Instructions by position, and the positions that touch each tile on chip.

    Args:
        items: in the order of the program.
        first: number of the first storage that the kernel made; older ones belong to its caller.
    """

    def __init__(self, items: Iterable[Instruction], first: int) -> None:
        self.items: list[Instruction | None] = list(items)
        self.first = first
        self.later: dict[int, list[Instruction]] = {}
        self.uses: dict[Storage, list[int]] = {}
        for at, i in enumerate(self.items):
            for storage in _touched(i):
                self.uses.setdefault(storage, []).append(at)

    def __len__(self) -> int:
        return len(self.items)

    def is_local(self, storage: Storage) -> bool:
        """Whether nobody but this kernel can see it."""
        return storage.role == "local" and storage.number >= self.first

    def remove(self, at: int) -> Instruction:
        """Take an instruction out."""
        i = self.items[at]
        assert i is not None
        for storage in _touched(i):
            uses = self.uses[storage]
            del uses[bisect_left(uses, at)]
        self.items[at] = None
        return i

    def put(self, at: int, i: Instruction) -> None:
        """Fill a hole."""
        assert self.items[at] is None
        self.items[at] = i
        for storage in _touched(i):
            insort(self.uses.setdefault(storage, []), at)

    def postpone(self, at: int, before: int) -> None:
        """Let an instruction follow later, right before another; its tile forgets it until then."""
        self.later.setdefault(before, []).append(self.remove(at))

    def program(self) -> list[Instruction]:
        """The instructions in order, without holes."""
        found: list[Instruction] = []
        for at, i in enumerate(self.items):
            found += self.later.get(at, ())
            if i is not None:
                found.append(i)
        return found

    def between(self, storage: Storage, low: int, high: int) -> Iterator[Instruction]:
        """Who touches a tile after position `low` and before `high`."""
        uses = self.uses.get(storage, [])
        for at in uses[bisect_left(uses, low + 1) : bisect_left(uses, high)]:
            i = self.items[at]
            assert i is not None
            yield i


def _touched(i: Any) -> set[Storage]:
    spec = INSTRUCTIONS[i.opcode]
    touched = [*spec.reads(i), *spec.writes(i)]
    return {a.storage for a in touched if a.storage.region.on_chip}


# ---- elements -----------------------------------------------------------------------------------


def in_order(a: Access) -> tuple[Any, ...]:
    """What two views have in common that give the same elements in the same order.

    Partitions apart, the shape doesn't count: instructions flatten free dimensions.
    """
    dims = tuple(joined(a.shape[1:], a.strides[1:]))
    rows = (a.shape[0], a.strides[0] if a.shape[0] > 1 else 0)
    return a.storage.number, a.offset, rows, dims, a.dtype.name


def apart(a: Access, b: Access) -> bool:
    """Whether two views on chip surely share no element: other tiles, or other columns."""
    if a.storage is not b.storage:
        return True
    if a.dynamic is not None or b.dynamic is not None:
        return False
    (low, high), (start, end) = _columns(a), _columns(b)
    return high <= start or end <= low


def _columns(a: Access) -> tuple[int, int]:
    """First byte within a partition that a view touches, and the one after the last."""
    row, size = a.storage.partition_bytes, a.dtype.itemsize
    low = high = a.offset * size % row
    for n, stride in zip(a.shape[1:], a.strides[1:]):
        low += min(0, (n - 1) * stride * size)
        high += max(0, (n - 1) * stride * size)
    return (low, high + size) if low >= 0 and high + size <= row else (0, row)


UNSET, ZERO, PRODUCT, OTHER = range(4)  # what an element of PSUM holds, in the order of `Contents`


class Contents:
    """What the elements of one tile hold: nothing yet, a zero, a matmul's result, anything else.

    A matmul without `accumulate=` replaces the first two and the last, and adds to the third.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.all: int | None = UNSET
        self.each: Elements | None = None

    def within(self, a: Access) -> tuple[int, int]:
        """The least and the greatest of what a view holds."""
        if a.dynamic is not None:
            return UNSET, OTHER
        if self.all is not None:
            return self.all, self.all
        assert self.each is not None
        units = self.each.units(a)
        return int(units.min()), int(units.max())

    def put(self, a: Access, kind: int) -> None:
        """Elements hold something else now."""
        if covers(a):
            self.all, self.each = kind, None
            return
        if self.all is not None:
            if self.all == kind and a.dynamic is None:
                return
            self.each, self.all = Elements(self.storage, self.all, "uint8"), None
        assert self.each is not None
        if a.dynamic is not None:
            self.each.mask[...] = OTHER
        else:
            self.each.units(a)[...] = kind

    def follow(self, i: Instruction) -> None:
        """What an instruction leaves in the tile."""
        spec = INSTRUCTIONS[i.opcode]
        for a in spec.writes(i):
            if a.storage is self.storage:
                self.put(a, kind_of(i))


def kind_of(i: Instruction) -> int:
    """What an instruction leaves in PSUM."""
    if INSTRUCTIONS[i.opcode].accumulates:
        return PRODUCT
    return ZERO if zeroes(i) else OTHER


def zeroes(i: Instruction) -> bool:
    """Whether it fills a tile with zeros."""
    return i.opcode == "memset" and i["value"] == 0
