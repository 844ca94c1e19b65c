"""The HBM stacks of a world, on all of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import ray
import ray.exceptions

from nki_dist.core_actor.lost import LOST
from nki_dist.core_actor.nodes import on_node
from nki_dist.core_actor.watchdog import Patience
from nki_dist.errors import CoreLostError, NkiError
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Inputs, Layout
from nki_dist.hbm.node_regions import NodeRegions
from nki_dist.hbm.nodes import here
from nki_dist.hbm.stacks import (
    NodeStacks,
    make_fill,
    sparse,
    unknown_there,
    with_arrays,
)
from nki_dist.ranges import named

_T = TypeVar("_T", bound="NodeStacks | NodeRegions")


class WorldMemory(Generic[_T]):
    """Memory of a world's ranks: of this node an object, of each other one an actor like it.

    Args:
        groups: for each node the ranks that share memory.
        world: its name.
        options: Ray's, of actors.

    Attributes:
        kind: class of the object.
    """

    kind: type[Any]

    def __init__(
        self,
        groups: Mapping[str, Sequence[Sequence[int]]],
        world: str,
        options: Mapping[str, Any],
    ) -> None:
        self._ranks = {node: [r for g in ranks for r in g] for node, ranks in groups.items()}
        self._agents: dict[str, Any] = {}
        self._mine: _T | None = None
        for node, group in groups.items():
            if node == here():
                self._mine = self.kind(group, world)
            else:
                agent = ray.remote(num_cpus=0, **{**options, **on_node(node)})(self.kind)
                self._agents[node] = agent.remote(group, world)

    def close(self) -> None:
        """Let go of everything and end the actors. Idempotent."""
        if self._mine is not None:
            self._mine.close()
        if ray.is_initialized():
            for agent in self._agents.values():
                ray.kill(agent)
        self._agents = {}

    def _everywhere(self, what: str, *args: Any, patience: Patience) -> dict[str, Any]:
        """What a method returns on each node."""
        away = {node: getattr(a, what).remote(*args) for node, a in self._agents.items()}
        found = {} if self._mine is None else {here(): getattr(self._mine, what)(*args)}
        return found | {n: self._answer(n, future, patience) for n, future in away.items()}

    def _answer(self, node: str, future: Any, patience: Patience) -> Any:
        """What the actor of another node answers.

        Raises:
            CoreLostError: the node is gone, or doesn't answer in time.
        """
        try:
            patience.wait([future], lambda _: f"the Ray node {node}", node)
            return ray.get(future)
        except LOST as error:
            raise CoreLostError(
                f"the Ray node {node} that simulated {named(self._ranks[node])} is gone; the "
                "next launch uses the nodes that are left"
            ) from error
        except ray.exceptions.RayTaskError as error:
            ours = isinstance(error.cause, NkiError)  # which says it all, where Ray's has a trace
            raise error.cause if ours else error.as_instanceof_cause() from None


class WorldStacks(WorldMemory[NodeStacks]):
    """All HBM stacks of a world, wherever they are; see WorldMemory."""

    kind = NodeStacks

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._makes_nothing: set[str] = set()  # nodes without modules of functions
        self._capacity = (0, 0)

    def may_move(self, layout: Layout) -> bool:
        """Whether stacks may have to move: larger than all since the last failure."""
        return layout.stack_bytes > self._capacity[0] or layout.common_bytes > self._capacity[1]

    def fill(
        self, layout: Layout, inputs: Sequence[Inputs], patience: Patience
    ) -> dict[int, ArenaHandle]:
        """Prepare every rank's stack; returns where it is.

        Raises:
            OutOfMemoryError: an object store is too small.
            CoreLostError: a node is gone, or doesn't answer in time.
            LaunchError: an array that a function makes isn't what it has to be.
        """
        before, self._capacity = self._capacity, (0, 0)  # until it is known that there is as much
        away = [(node, self._fill_there(node, layout, inputs)) for node in self._agents]
        handles: list[ArenaHandle] = []
        if self._mine is not None:
            handles += self._mine.fill(make_fill(layout, inputs, self._mine.ranks, travels=False))
        for node, future in away:
            try:
                handles += self._answer(node, future, patience)
            except Exception as error:  # of whatever class a task's error is made
                if node in self._makes_nothing or not unknown_there(error):
                    raise
                self._makes_nothing.add(node)
                future = self._fill_there(node, layout, inputs)
                handles += self._answer(node, future, patience)
        self._capacity = max(before[0], layout.stack_bytes), max(before[1], layout.common_bytes)
        return {rank: handle for handle in handles for rank in handle.ranks}

    def memories(self, layout: Layout, patience: Patience) -> list[np.ndarray]:
        """The bytes of every rank's stack; of other nodes' only what is read back.

        Raises:
            CoreLostError: a node is gone, or doesn't answer in time.
        """
        away = [(node, a.read.remote(layout.read_back)) for node, a in self._agents.items()]
        found: dict[int, np.ndarray] = {}
        if self._mine is not None:
            found = {rank: self._mine.memory(rank) for rank in self._mine.ranks}
        for node, future in away:
            for rank, parts in self._answer(node, future, patience).items():
                found[rank] = sparse(layout, parts)
        return [found[rank] for rank in sorted(found)]

    def _fill_there(self, node: str, layout: Layout, inputs: Sequence[Inputs]) -> Any:
        """Have another node fill its stacks. What makes arrays makes them there, unless it refers
        to something that can't be pickled, or that isn't there: then here, which gives the same
        arrays."""
        ranks, fill = self._ranks[node], self._agents[node].fill.remote
        if node not in self._makes_nothing:
            try:
                return fill(make_fill(layout, inputs, ranks, travels=True))
            except TypeError as error:
                if "serialize" not in str(error):
                    raise
        return fill(make_fill(layout, with_arrays(inputs, ranks), ranks, travels=True))
