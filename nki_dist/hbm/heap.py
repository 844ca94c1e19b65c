"""Memory of one process that the others of its node can read: where payloads of messages lie.

Segments are plasma objects, made when needed; a block is a part of one. A block is an array's
memory: it goes back to the heap when the last array that lies in it is gone, and the owner keeps
arrays alive that somebody else still reads (`core_actor.payloads`).

Not thread-safe but for one thing: arrays may be collected in any thread, so a block only notes its
place in a queue then, and the next `take` puts it back.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Any, Final

import numpy as np

from nki_dist.errors import OutOfMemoryError
from nki_dist.hbm.alignment import padded
from nki_dist.hbm.plasma import HbmStack, StackHandle

LARGEST_STEP: Final = 64 << 20  # bytes up to which a new segment is as large as all before


class Block:
    """A part of a segment, and the base of every array that lies in it."""

    def __init__(self, memory: np.ndarray, place: tuple[int, int, int], back: deque[Any]) -> None:
        self.memory = memory  # of the segment: keeps it mapped
        self.place = place
        self._back = back
        _, start, end = place
        self.__array_interface__ = {
            "version": 3,
            "shape": (end - start,),
            "typestr": "|u1",
            "data": (memory.ctypes.data + start, False),
        }

    def __del__(self) -> None:
        self._back.append(self.place)


class Heap:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._segments: list[HbmStack] = []
        self._free: list[list[tuple[int, int]]] = []  # of each segment, sorted (start, end)
        self._back: deque[tuple[int, int, int]] = deque()
        self._refused = 0

    def take(self, nbytes: int) -> np.ndarray | None:
        """(nbytes,) uint8, uninitialised, at a cache line; None if the object store is full."""
        need = padded(max(nbytes, 1))
        while self._back:
            self._put_back(*self._back.popleft())
        for number in reversed(range(len(self._segments))):
            for position, (start, end) in enumerate(self._free[number]):
                if end - start >= need:
                    return self._carve(number, position, need)[:nbytes]
        if self._refused and need >= self._refused:
            return None
        total = sum(s.capacity for s in self._segments)
        try:
            segment = HbmStack.create(max(need, min(total, LARGEST_STEP)))
        except OutOfMemoryError:
            self._refused = need
            return None
        self._segments.append(segment)
        self._free.append([(0, segment.capacity)])
        return self._carve(len(self._segments) - 1, 0, need)[:nbytes]

    def try_again(self) -> None:
        """The object store may have room again."""
        self._refused = 0

    def handle(self, number: int) -> StackHandle:
        """What another process needs to map a segment."""
        return self._segments[number].handle

    def memory(self, number: int) -> np.ndarray:
        """The bytes of a segment."""
        return self._segments[number].memory

    def segments(self) -> list[tuple[int, int]]:
        """(address, size) of each segment in this process."""
        return [(s.memory.ctypes.data, s.capacity) for s in self._segments]

    def _carve(self, number: int, position: int, need: int) -> np.ndarray:
        free = self._free[number]
        start, end = free.pop(position)
        if end - start > need:
            free.insert(position, (start + need, end))
        memory = self._segments[number].memory
        return np.asarray(Block(memory, (number, start, start + need), self._back))

    def _put_back(self, number: int, start: int, end: int) -> None:
        free = self._free[number]
        insort(free, (start, end))
        at = free.index((start, end))
        if at + 1 < len(free) and free[at + 1][0] == end:
            end = free.pop(at + 1)[1]
            free[at] = (start, end)
        if at and free[at - 1][1] == start:
            start = free.pop(at - 1)[0]
            free[at - 1] = (start, end)
