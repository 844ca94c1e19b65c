"""The HBM stacks of a world, on all of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import ray
import ray.exceptions

from nki_dist.core_actor.lifeline import Patience
from nki_dist.core_actor.lost import LOST
from nki_dist.core_actor.nodes import per_node
from nki_dist.errors import CoreLostError, NkiError
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Inputs, Layout
from nki_dist.hbm.stacks import (
    NodeStacks,
    all_made,
    make_fill,
    sparse,
    unknown_there,
)
from nki_dist.ranges import named


class WorldStacks:
    """All HBM stacks of a world, wherever they are.

    Args:
        groups: for each node the ranks that share an object.
        world: its name.
        options: Ray's, of agents on other nodes.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[Sequence[int]]],
        world: str,
        options: Mapping[str, Any],
    ) -> None:
        self._ranks = {node: [r for g in ranks for r in g] for node, ranks in groups.items()}
        self._mine, self._agents = per_node(groups, NodeStacks, world, options)
        self._makes_nothing: set[str] = set()  # nodes without modules of functions
        self._room = (0, 0)

    def may_move(self, layout: Layout) -> bool:
        """Whether stacks may have to move: larger than all since the last failure."""
        return layout.stack_bytes > self._room[0] or layout.common_bytes > self._room[1]

    def fill(
        self, layout: Layout, inputs: Sequence[Inputs], patience: Patience
    ) -> dict[int, ArenaHandle]:
        """Prepare every rank's stack; returns where it is.

        Raises:
            OutOfMemoryError: an object store is too small.
            CoreLostError: a node is gone, or doesn't answer in time.
            LaunchError: an array that a function makes isn't what it has to be.
        """
        before, self._room = self._room, (0, 0)  # until it is known that there is as much
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
        self._room = max(before[0], layout.stack_bytes), max(before[1], layout.common_bytes)
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

    def close(self) -> None:
        """Let go of all stacks and end the agents. Idempotent."""
        if self._mine is not None:
            self._mine.close()
        if ray.is_initialized():
            for agent in self._agents.values():
                ray.kill(agent)
        self._agents = {}

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
        return fill(make_fill(layout, all_made(inputs, ranks), ranks, travels=True))

    def _answer(self, node: str, future: Any, patience: Patience) -> Any:
        return node_answer(node, self._ranks[node], future, patience)


def node_answer(node: str, ranks: Sequence[int], future: Any, patience: Patience) -> Any:
    """What an agent on a node that simulates these ranks answers.

    Raises:
        CoreLostError: the node is gone, or doesn't answer in time.
    """
    try:
        patience.wait([future], lambda _: f"the Ray node {node}", node)
        return ray.get(future)
    except LOST as error:
        raise CoreLostError(
            f"the Ray node {node} that simulated {named(ranks)} is gone; the "
            "next launch uses the nodes that are left"
        ) from error
    except ray.exceptions.RayTaskError as error:
        ours = isinstance(error.cause, NkiError)  # which says it all, where Ray's has a trace
        raise error.cause if ours else error.as_instanceof_cause() from None
