"""Stacks of several ranks in one plasma object, and the memory that ranks of a node have in common.

An object costs a call to the store, a mapping in every process and at least a mebibyte, so a world
of hundreds of ranks keeps the stacks of the ranks that share actors in one. Invariants: the stacks
of an arena are equally large and start at cache lines; what `generation` names never moves.

Not modelled here: what lies where in a stack (`layout`), and which ranks share an arena.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nki_dist.errors import OutOfMemoryError
from nki_dist.hbm.plasma import Bytes, HbmStack, StackHandle, map_writable
from nki_dist.ops.alignment import ALIGNMENT, padded

GENEROUS: Final = 16 << 20  # bytes up to which an object gets more than was asked for
FAULT_AROUND: Final = 64 << 10  # bytes; Linux's fault_around_bytes unless somebody has changed it


@dataclass(frozen=True)
class ArenaHandle:
    """What an actor needs to map the stacks of its ranks.

    Attributes:
        handle: of the object.
        ranks: whose stacks lie in it, in order.
        stride: bytes from one stack to the next.
        common: of the object with the inputs that all ranks have in common, if there are any.
    """

    handle: StackHandle
    ranks: tuple[int, ...]
    stride: int
    common: StackHandle | None = None

    @property
    def generation(self) -> Hashable:
        """Equal generations name the same memory."""
        common = None if self.common is None else self.common.ref.hex()
        return self.handle.ref.hex(), self.stride, common


@dataclass(frozen=True, eq=False)
class MappedArena:
    """An arena as one actor sees it: bytes of each rank's stack, and of what all have in common.

    Attributes:
        object: with the stacks in it, its bytes and how others of the node map it.
    """

    object: tuple[Bytes, StackHandle]
    stacks: dict[int, np.ndarray]
    common: np.ndarray | None
    generation: Hashable


class Arena:
    """The owner's side of an arena.

    Args:
        ranks: whose stacks it holds.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self.stride = 0
        self._stack: HbmStack | None = None
        self._least = 0

    def vacate(self, need: int) -> None:
        """Let go of the object if `need` bytes per rank don't fit.

        Vacate all arenas of a node before making room in any: the next object may need the place
        of several.
        """
        if self._stack is not None and self._total(need) > self._stack.capacity:
            # Small objects at least double, so that ever larger launches seldom move them; large
            # ones get what they need and no more, because several have to fit into one store.
            self._least = min(2 * self._stack.capacity, GENEROUS)
            self.close()

    def ensure(self, need: int) -> None:
        """Make room for `need` bytes per rank.

        Raises:
            OutOfMemoryError: the node's object store is too small.
        """
        self.vacate(need)
        if self._stack is None:
            self._stack = self._created(self._total(need))
            self.stride = self._stack.capacity // len(self.ranks) // ALIGNMENT * ALIGNMENT

    def _created(self, total: int) -> HbmStack:
        """At least as large as was generous of `vacate`, or as large as must be."""
        if self._least > total:
            try:
                return HbmStack.create(self._least)
            except OutOfMemoryError:
                pass  # tried again with less
        return HbmStack.create(total)

    def _total(self, need: int) -> int:
        return padded(max(need, 1)) * len(self.ranks)

    def memory(self, rank: int) -> np.ndarray:
        """The bytes of a rank's stack, writable."""
        assert self._stack is not None
        return _part(self._stack.memory, self.ranks, self.stride, rank)

    @property
    def object(self) -> StackHandle:
        """The object as such."""
        assert self._stack is not None
        return self._stack.handle

    def handle(self, common: StackHandle | None) -> ArenaHandle:
        """What to send to the actors of the arena's ranks."""
        return ArenaHandle(self.object, self.ranks, self.stride, common)

    def close(self) -> None:
        """Let go of the object. Idempotent."""
        if self._stack is not None:
            self._stack.close()
            self._stack = None


def map_arena(handle: ArenaHandle) -> MappedArena:
    """Map the stacks and the common memory of an arena into this process.

    Raises:
        LaunchError: this process is on another node, or the object is gone.
    """
    memory = map_writable(handle.handle)
    _enter_pages(memory)
    stacks = {r: _part(memory, handle.ranks, handle.stride, r) for r in handle.ranks}
    common = None if handle.common is None else map_writable(handle.common)
    return MappedArena((memory, handle.handle), stacks, common, handle.generation)


def _enter_pages(memory: Bytes) -> None:
    """Read a byte here and there, so that stores find the pages in this process's page table.

    Where a page that exists already is first read, Linux enters those around it as well, writable
    in shared memory; where it is first written, that page alone. Cores mostly write first, and an
    interrupt for each page takes several times as long as what is stored in it.
    """
    memory[::FAULT_AROUND].max(initial=0)


def _part(memory: np.ndarray, ranks: Sequence[int], stride: int, rank: int) -> np.ndarray:
    at = ranks.index(rank) * stride
    return memory[at : at + stride]
