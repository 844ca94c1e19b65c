"""Where tensors that stay in HBM lie: blocks of regions, the same for every rank of a world.

A region is memory of every rank, made and dropped by the host. Blocks are taken from the smallest
region that has room, from its beginning on, so a program that goes on in rounds finds the same
places in every round, and what was bound to them is used again.

Blocks may be collected in any thread (see `FreeList`). Else not thread-safe: whoever launches calls
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from nki_dist.hbm.free_list import FreeList
from nki_dist.ops.alignment import padded

LEAST: Final = 64 << 10  # bytes of a region
LARGEST: Final = 16 << 20  # bytes of all ranks up to which a region gets more than was asked for
RESERVE: Final = 64 << 20  # bytes of all ranks that stay for later tensors when nobody has them


class Block:
    """Memory of one tensor, in every rank; it goes back when the last who has it lets go.

    Attributes:
        place: the region's number, and bytes from its beginning.
        nbytes: of the tensor.
    """

    def __init__(self, place: tuple[int, int], nbytes: int, free: FreeList) -> None:
        self.place, self.nbytes = place, nbytes
        self._free = free

    def __del__(self) -> None:
        self._free.back.append((self.place[1], padded(self.nbytes)))


class Regions:
    """Of one world.

    Args:
        ranks: that have as much memory each.

    Attributes:
        sizes: bytes, of each rank, of the regions there are, by number.
    """

    def __init__(self, ranks: int = 1) -> None:
        self._generous = max(LARGEST // ranks, LEAST)
        self.sizes: dict[int, int] = {}
        self._free: dict[int, FreeList] = {}
        self._numbers = itertools.count()

    @property
    def taken(self) -> int:
        """Bytes of each rank that somebody has."""
        return sum([free.taken for free in self._free.values()])

    def take(self, nbytes: int) -> Block:
        """A block, in a region that may be new."""
        need = padded(nbytes)
        for number in self._by_size():
            free = self._free[number]
            if (start := free.take(need)) is not None:
                return Block((number, start), nbytes, free)
        number, have = next(self._numbers), sum(self.sizes.values())
        size = self.sizes[number] = max(need, min(max(have, LEAST), self._generous))
        free = self._free[number] = FreeList(0, size)
        free.take(need)
        return Block((number, 0), nbytes, free)

    def _by_size(self) -> list[int]:
        return sorted(self.sizes, key=lambda number: self.sizes[number])

    def empty(self, reserve: int) -> Iterator[int]:
        """Numbers of regions that nobody has anything in, but for some that stay for later.

        They are forgotten; whoever asks drops them.

        Args:
            reserve: bytes, of each rank, of those that stay.
        """
        for number in self._by_size():
            if not self._free[number].taken:
                reserve -= self.sizes[number]
                if reserve < 0:
                    self.forget(number)
                    yield number

    def forget(self, number: int | None = None) -> None:
        """A region couldn't be made, or all are lost; blocks in them come back to nothing."""
        for each in list(self.sizes) if number is None else [number]:
            del self.sizes[each], self._free[each]
