"""Gives out blocks of memory that other processes can read, for the payloads of messages.

A block is an array's memory: it goes back to the heap when the last array that lies in it is gone,
and the owner keeps arrays alive that somebody else still reads (`core_actor.payloads`). Places are
given from the beginning on, so that memory that was written before is used again first.

Not thread-safe but for one thing: arrays may be collected in any thread (see `FreeList`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from nki_dist.hbm.alias import Alias
from nki_dist.hbm.free_list import FreeList
from nki_dist.ops.alignment import padded

FIRST_STEP: Final = 1 << 20
LARGEST_STEP: Final = 64 << 20  # bytes up to which a heap grows by as much as it has


class Block(Alias):
    """A part of the heap, and the base of every array that lies in it."""

    def __init__(self, memory: np.ndarray, place: tuple[int, int], free: FreeList) -> None:
        start, nbytes = self._place = place
        super().__init__(memory.ctypes.data + start, nbytes, memory)
        self._free = free

    def __del__(self) -> None:
        self._free.back.append(self._place)


class Heap:
    """See the module's docstring.

    Args:
        memory: uint8; as much of it as was never written takes no memory.
        start, end: which part of it this heap has.
        left: how many bytes the machine has left, asked before more is written than ever before.
    """

    def __init__(self, memory: np.ndarray, start: int, end: int, left: Callable[[], int]) -> None:
        self._memory, self._left = memory, left
        self._start = self._touched = start  # what lies from there on was never written
        self._free = FreeList(start, end)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, in use or not."""
        return self._touched - self._start

    def take(self, nbytes: int) -> np.ndarray | None:
        """(nbytes,) uint8, uninitialised, at a cache line; None if there is no room."""
        need = padded(max(nbytes, 1))
        begin = self._free.take(need)
        if begin is None:
            return None
        if begin + need > self._touched and not self._grow(begin + need):
            self._free.back.append((begin, need))
            return None
        return np.asarray(Block(self._memory, (begin, need), self._free))[:nbytes]

    def _grow(self, end: int) -> bool:
        """Whether there is memory up to there. Half of what is left is others'."""
        step = max(end - self._touched, min(max(self.nbytes, FIRST_STEP), LARGEST_STEP))
        if 2 * step > self._left():
            return False
        self._touched += step
        return True
