"""Pictures of everything that a launch wrote, taken while it is carried out once more.

A picture is what one instruction wrote to one operand: all of it where there is room, else every
second, fourth, ... row or column, with the range of all of it. Room is shared so that what shows
most is kept whole longest: of every line the first two rounds, those whose number is a power of
four, and the last one. Nothing is left out without the page saying so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from nki_dist.insight.executed import parameters
from nki_dist.insight.log import Log
from nki_dist.insight.regions import region
from nki_dist.insight.replay import Hooks, Launched, Place
from nki_dist.isa.gather import has_vector
from nki_dist.isa.indirection import is_indirect
from nki_dist.program import Access, Instruction

LARGEST: Final = 1 << 20  # elements of a picture
NAN, INFINITE = 1, 2  # what `odd` is made of
_KINDS: Final = {"i": np.int32, "u": np.uint32, "b": np.uint32}


class Picture:
    """What was written at once, or what an argument holds.

    Attributes:
        values: (rows, columns) that were kept, four bytes each: float32, int32 or uint32.
        shape: (rows, columns) of all of it.
        every: it has each `every[0]`-th row and each `every[1]`-th column.
        low, high: of all finite elements.
        odd: NAN if it has some, INFINITE if it has some, or both.
        main: it is to be kept whole as long as there is room.
    """

    __slots__ = ("every", "high", "low", "main", "odd", "shape", "values")

    def __init__(self, array: np.ndarray, main: bool, most: int = LARGEST) -> None:
        if array.dtype.names:  # packed
            array = array.view(f"u{array.itemsize}")
        rows = array.shape[0] if array.ndim > 1 else 1
        self.shape = rows, array.size // max(rows, 1)
        self.main = main
        self.low, self.high, self.odd = _range(array)
        down, across = self.every = _every(self.shape, (1, 1), most)
        flat = array if array.ndim == 2 else array.reshape(self.shape)
        # As float32, int32 or uint32, whichever holds the values.
        kind = _KINDS.get(array.dtype.kind, np.float32)
        self.values = np.array(flat[::down, ::across], kind)

    def shrink(self, most: int) -> int:
        """Keep so many elements, or fewer; the bytes that this saves."""
        size, before = self.values.nbytes, self.every
        self.every = _every(self.shape, before, most)
        down, across = (now // then for now, then in zip(self.every, before))
        self.values = self.values[::down, ::across].copy()
        return size - self.values.nbytes


@lru_cache(4096)
def _every(shape: tuple[int, int], every: tuple[int, int], most: int) -> tuple[int, int]:
    """Of which rows and columns one is kept, so that there are few enough elements."""
    down, across = every
    while (rows := -(-shape[0] // down)) * (columns := -(-shape[1] // across)) > most:
        if columns >= rows:
            across *= 2
        else:
            down *= 2
    return down, across


def _range(array: np.ndarray) -> tuple[float, float, int]:
    """Least and greatest of what is finite, and what isn't."""
    if not array.size:
        return 0.0, 0.0, 0
    if array.dtype.kind == "V" or (array.dtype.itemsize < 4 and array.dtype.kind not in "iub"):
        array = array.astype(np.float32)  # of ml_dtypes, whose own comparisons are slow
    low, high = float(array.min()), float(array.max())
    odd = 0
    if not np.isfinite(low) or not np.isfinite(high):
        finite = np.isfinite(array)
        odd = NAN * bool(np.isnan(array).any()) | INFINITE * bool(np.isinf(array).any())
        some = array[finite]
        low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 0.0)
    return low, high, odd


class Film(Log):
    """A log with pictures.

    Args:
        budget: bytes that they may take once packed; three times as many are kept at first.

    Attributes:
        pictures: by number of an instruction, of what it wrote, in the order of its writes.
        taken: bytes of all pictures.
        arguments: of what the kernel was given, by rank and number.
        parameters: what `executed.parameters` says of instructions, by their id.
    """

    def __init__(self, launched: Launched, budget: int) -> None:
        self.pictures: dict[int, list[Picture]] = {}
        self.arguments: dict[tuple[int, int], Picture] = {}  # by rank and number
        self.parameters: dict[int, Any] = {}  # by instruction
        self.taken, self._budget = 0, 3 * budget  # more than fits: how well it packs isn't known
        self._small = LARGEST
        # By line: how often it was carried out, what it wrote last, and if that is kept anyway.
        self._rounds: dict[Any, tuple[int, list[Picture], bool]] = {}
        for rank, arrays in enumerate(launched.inputs):
            for n, array in enumerate(arrays):
                self.arguments[rank, n] = picture = Picture(array, True)
                self.taken += picture.values.nbytes
        super().__init__(launched)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        before, after = super().linking(place, i)
        found = self.parameters[id(i)] = parameters(i)
        if not found[1]:
            return before, after
        return before, partial(self._take, place, i, list(found[1].values()), after)

    def _take(
        self, place: Place, i: Instruction, written: Sequence[Access], after: Any, number: int
    ) -> None:
        if after is not None:
            after(number)
        line = place.slot.core, i.location
        count, last, stays = self._rounds.get(line, (0, [], True))
        for p in last if not stays else ():  # it was the last so far
            p.main = False
            if p.values.size > self._small:
                self.taken -= p.shrink(self._small)
        count += 1
        found = [Picture(self._values(place, a), True) for a in written]
        # 1, 2, 4, 16, 64, ...
        stays = count == 2 or bool(not count & (count - 1) and count & 0x55555555)
        self._rounds[line] = count, found, stays
        self.pictures[number] = found
        self.taken += sum(p.values.nbytes for p in found)
        if self.taken > self._budget:
            self.fit(self._budget * 3 // 4)

    def _values(self, place: Place, a: Access) -> np.ndarray:
        if has_vector(a) or is_indirect(a):
            r = region(place.slot, a, place.kit)
            values = r.get(place.kit)
            return values if a.dtype.is_mx else values.view(a.dtype.storage)
        view: np.ndarray = place.kit.raw(a) if a.dtype.is_mx else place.kit.view(a)
        return view

    def fit(self, budget: int) -> None:
        """Keep less of some pictures, until all take no more than `budget` bytes."""
        every = self.of_writes
        lesser = [p for p in every if not p.main]
        for some, least in ((lesser, 16), ([*every, *self.arguments.values()], 1)):
            while self.taken > budget:
                largest = max((p.values.size for p in some), default=0)
                if largest <= least:
                    break
                for p in some:
                    if self.taken <= budget:
                        return
                    if p.values.size > largest // 2:
                        self.taken -= p.shrink(largest // 2)
                if some is lesser:
                    self._small = max(largest // 2, least)

    @property
    def of_writes(self) -> list[Picture]:
        """All pictures but those of arguments."""
        return [p for found in self.pictures.values() for p in found]
