"""The memory of a world's tensors that stay in HBM, on all of its nodes.

It outlives launches that fail and processes that die, and is lost with a node of the world, or with
its Ray session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.core_actor.watchdog import Patience
from nki_dist.core_actor.world_stacks import WorldMemory
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.contents import Fill, Place, bits
from nki_dist.hbm.layout import Given
from nki_dist.hbm.node_regions import NodeRegions


class WorldRegions(WorldMemory[NodeRegions]):
    """See the module's docstring, and WorldMemory.

    Attributes:
        handles: by region's number and rank, where it is.
    """

    kind = NodeRegions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.handles: dict[int, dict[int, ArenaHandle]] = {}

    def hold(self, number: int, nbytes: int, patience: Patience) -> None:
        """Make a region of every rank.

        Raises:
            OutOfMemoryError: an object store is too small; nothing of the region is left.
            CoreLostError: a node is gone, or doesn't answer in time.
        """
        try:
            results = self._everywhere("hold", number, nbytes, patience=patience)
        except BaseException:
            self.drop([number])
            raise
        handles = [handle for of in results.values() for handle in of]
        self.handles[number] = {rank: handle for handle in handles for rank in handle.ranks}

    def drop(self, numbers: Sequence[int]) -> None:
        """Let go of regions, which processes that have them mapped must have done."""
        for number in numbers:
            self.handles.pop(number, None)
        if self._mine is not None:
            self._mine.drop(numbers)
        for agent in self._agents.values():
            agent.drop.remote(numbers)

    def write(self, place: Place, values: Sequence[Given], patience: Patience) -> None:
        """Copy a tensor in, by rank. One array that several ranks get travels once."""
        away = {}
        for node, agent in self._agents.items():
            raw: dict[int, np.ndarray] = {}
            for rank in self._ranks[node]:
                same = next((r for r in raw if values[r] is values[rank]), None)
                raw[rank] = bits(values[rank]) if same is None else raw[same]
            away[node] = agent.write.remote(place, raw)
        if self._mine is not None:
            self._mine.write(place, values)
        for node, future in away.items():
            self._answer(node, future, patience)

    def read(self, place: Place, nbytes: int, patience: Patience) -> list[np.ndarray]:
        """Copies of a tensor's bits, by rank."""
        found: dict[int, np.ndarray] = {}
        for node, parts in self._everywhere("read", place, nbytes, patience=patience).items():
            found |= zip(self._ranks[node], parts)
        return [found[rank] for rank in sorted(found)]

    def fill(self, fills: Sequence[Fill], patience: Patience) -> None:
        """Poison tensors that nobody has written."""
        self._everywhere("fill", fills, patience=patience)
