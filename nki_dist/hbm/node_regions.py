"""Memory of the tensors that stay in HBM, on one Ray node: made, written, read and dropped there.

As of the stacks of launches (`stacks`), each node that simulates ranks has one `NodeRegions`: in
the launcher's process for its own node, as an actor on every other. A region is an arena
(`arena`) for each group of ranks that shares one; values cross between nodes as bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki_dist.hbm.actor_repr import ActorRepr
from nki_dist.hbm.arena import Arena, ArenaHandle
from nki_dist.hbm.contents import Memories
from nki_dist.ranges import named


class NodeRegions(Memories):
    """See the module's docstring.

    Args:
        groups: ranks whose memory lies in one object.
        world: its name.
    """

    def __init__(self, groups: Sequence[Sequence[int]], world: str) -> None:
        self._world = world
        self._groups = [tuple(ranks) for ranks in groups]
        self._group_of = {r: n for n, ranks in enumerate(groups) for r in ranks}
        self.ranks = tuple(self._group_of)
        self._arenas: dict[int, list[Arena]] = {}

    __repr__ = ActorRepr(lambda self: f"NodeRegions({named(self.ranks)} of world {self._world})")

    def hold(self, number: int, nbytes: int) -> list[ArenaHandle]:
        """Make a region.

        Raises:
            OutOfMemoryError: the node's object store can't hold it.
        """
        arenas = [Arena(ranks) for ranks in self._groups]
        for arena in arenas:
            arena.ensure(nbytes)
        self._arenas[number] = arenas
        return [arena.handle(None) for arena in arenas]

    def drop(self, numbers: Sequence[int]) -> None:
        """Let go of regions."""
        for number in numbers:
            for arena in self._arenas.pop(number, ()):
                arena.close()

    def close(self) -> None:
        """Let go of all of them. Idempotent."""
        self.drop(list(self._arenas))

    def memory(self, rank: int, number: int) -> np.ndarray:
        return self._arenas[number][self._group_of[rank]].memory(rank)
