"""Which Ray node simulates which instance, and the HBM stacks on all of them.

A world of several instances on a cluster of several nodes puts each instance on one node, in turns
if there are fewer nodes; anything else runs on the launcher's node. Nodes without processors (a
head that only manages, for instance) simulate nothing, unless there are no others. Invariant: ranks
of an instance are on one node, so a stack is never split; results don't depend on any of this.

Actors here take no CPU resources, because they are simulated cores and not processors; a node is
chosen by affinity, which fails rather than goes elsewhere. A placement group would reserve
resources instead: then a world could wait for ever for processors that another world or job holds,
and Ray would choose the node of the instance whose stacks the launcher reads without copying. So
worlds at once share nodes. Nodes are looked at when a world starts and when it lost one; one that
joins later is used by worlds that start later.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from nki_dist.core_actor import bell
from nki_dist.core_actor.lifeline import Patience
from nki_dist.errors import CoreLostError, LaunchError
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Layout
from nki_dist.hbm.stacks import Arrays, NodeStacks, StackAgent, all_made, make_fill, sparse
from nki_dist.isa.core import CoreSlot
from nki_dist.ranges import named

OWN_ACTORS = 16  # cores up to which each gets a process of its own


def pack(
    every: Sequence[CoreSlot],
    lnc: int,
    per_actor: str | int,
    processors: int | None = None,
    cores: int | None = None,
) -> list[list[CoreSlot]]:
    """Which cores share an actor. The cores of a rank are never split between packs of several.

    Args:
        every: cores to pack, all of some ranks.
        per_actor: how many, or "auto": one while that is sensible, then one actor per processor.
        processors: that are there for these cores; this machine's by default.
        cores: of the whole world; these are all by default.
    """
    if per_actor == "auto":
        ranks = -(-len(every) // lnc)
        packed = -(-ranks // (processors or os.cpu_count() or 1)) * lnc
        size = 1 if (cores or len(every)) <= OWN_ACTORS else packed
    elif isinstance(per_actor, int) and per_actor >= 1:
        size = per_actor if per_actor == 1 else -(-per_actor // lnc) * lnc
    else:
        raise LaunchError(
            f"cores_per_actor={per_actor!r}; allowed: 'auto' or a positive int", code="world-option"
        )
    return [list(every[i : i + size]) for i in range(0, len(every), size)]


def here() -> str:
    """The node of this process."""
    return ray.get_runtime_context().get_node_id()


def usable_nodes(gone: Collection[str] = ()) -> dict[str, int]:
    """Nodes that can simulate cores, with their processors; this one first if it has any.

    Args:
        gone: nodes that have ended, which Ray may not know yet.
    """
    alive = {n["NodeID"]: int(n["Resources"].get("CPU", 0)) for n in ray.nodes() if n["Alive"]}
    alive = {n: cpus for n, cpus in alive.items() if n not in gone}
    found = sorted((n for n in alive if alive[n]), key=lambda n: (n != here(), n))
    return {n: alive[n] for n in found} or {here(): 1}


def socket_folders() -> dict[str, str]:
    """Of each node the folder of the raylet's socket, which all of its processes reach."""
    return {n["NodeID"]: os.path.dirname(n.get("RayletSocketName", "")) for n in ray.nodes()}


def on_node(node: str) -> dict[str, Any]:
    """Options of an actor that must run on a node."""
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


class Placement:
    """The cores of a world in packs, and the node of each instance.

    Args:
        every: all cores.
        lnc: cores per rank.
        per_actor: as in `pack`.
        per_instance: ranks of an instance.

    Attributes:
        packs: cores that share an actor.
        nodes: for each pack its node.
    """

    def __init__(
        self, every: Sequence[CoreSlot], lnc: int, per_actor: str | int, per_instance: int
    ) -> None:
        nodes = usable_nodes()
        size = per_instance * lnc
        instances = [every[i : i + size] for i in range(0, len(every), size)]
        self.packs: list[list[CoreSlot]] = []
        self._instance_of: list[int] = []
        if len(nodes) == 1 or len(instances) == 1:
            self.packs = pack(every, lnc, per_actor)
            self._instance_of = [0] * len(self.packs)
        else:
            processors = list(nodes.values())
            for number, cores in enumerate(instances):
                turn = number % len(processors)
                sharing = len(range(turn, len(instances), len(processors)))  # of that node
                share = max(1, processors[turn] // sharing)
                packs = pack(cores, lnc, per_actor, share, len(every))
                self.packs += packs
                self._instance_of += [number] * len(packs)
        self.nodes: list[str] = []
        self.choose()

    def choose(self, gone: Collection[str] = ()) -> None:
        """Assign instances to nodes that are alive now; `gone` as in usable_nodes.

        Those whose node is alive stay there: so do their actors.
        """
        nodes = list(usable_nodes(gone))
        of = {i: node for i, node in zip(self._instance_of, self.nodes) if node in nodes}
        for i in dict.fromkeys(self._instance_of):
            if i not in of:
                load = Counter(of.values())
                of[i] = min(nodes, key=load.__getitem__)  # in turns, in the beginning
        self.nodes = [of[i] for i in self._instance_of]

    def lost(self, gone: Collection[str] = ()) -> bool:
        """Whether a node of this world is gone; `gone` as in usable_nodes."""
        return not set(self.nodes) <= set(usable_nodes(gone))

    def near(self, n: int, transport: str) -> frozenset[int]:
        """The packs that pack n reaches through shared memory.

        Args:
            transport: World's argument.

        Raises:
            LaunchError: it can't be had here.
        """
        if transport == "ring" and (len(set(self.nodes)) > 1 or not bell.possible()):
            raise LaunchError(
                f"transport='ring' is for processes of one Linux machine; this world has "
                f"{len(set(self.nodes))} Ray nodes on {sys.platform}: use transport='auto'",
                code="ring-transport",
                numbers={"nodes": len(set(self.nodes))},
            )
        if transport == "messages" or not bell.possible():
            return frozenset()
        same = (m for m, node in enumerate(self.nodes) if node == self.nodes[n])
        return frozenset(same) - {n}

    def groups(self) -> dict[str, list[list[int]]]:
        """For each node the ranks that share actors."""
        found: dict[str, list[list[int]]] = {}
        for node, cores in zip(self.nodes, self.packs):
            ranks = sorted({c.rank for c in cores})
            if ranks not in found.setdefault(node, []):  # packs of one core share their rank
                found[node].append(ranks)
        return found


class WorldStacks:
    """All HBM stacks of a world, wherever they are.

    Args:
        groups: for each node the ranks that share an object.
    """

    def __init__(self, groups: Mapping[str, Sequence[Sequence[int]]]) -> None:
        self._ranks = {node: [r for g in ranks for r in g] for node, ranks in groups.items()}
        self._mine: NodeStacks | None = None
        self._agents: dict[str, Any] = {}
        self._room = (0, 0)
        for node, ranks in groups.items():
            if node == here():
                self._mine = NodeStacks(ranks)
            else:
                options = on_node(node)
                self._agents[node] = StackAgent.options(**options).remote(ranks)  # type: ignore[attr-defined]

    def may_move(self, layout: Layout) -> bool:
        """Whether stacks may have to move: larger than all since the last failure."""
        return layout.stack_bytes > self._room[0] or layout.common_bytes > self._room[1]

    def fill(
        self, layout: Layout, inputs: Sequence[Arrays], patience: Patience
    ) -> dict[int, ArenaHandle]:
        """Prepare every rank's stack; returns where it is.

        Raises:
            OutOfMemoryError: an object store is too small.
            CoreLostError: a node is gone, or doesn't answer in time.
            LaunchError: an array that a function makes isn't what it has to be.
        """
        before, self._room = self._room, (0, 0)  # until it is known that there is as much
        away = [
            (node, _fill_there(agent, layout, inputs, self._ranks[node]))
            for node, agent in self._agents.items()
        ]
        handles: list[ArenaHandle] = []
        if self._mine is not None:
            handles += self._mine.fill(make_fill(layout, inputs, self._mine.ranks, travels=False))
        for node, future in away:
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

    def _answer(self, node: str, future: Any, patience: Patience) -> Any:
        try:
            patience.wait([future], lambda _: f"the Ray node {node}", node)
            return ray.get(future)
        except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError) as error:
            ranks = self._ranks[node]
            raise CoreLostError(
                f"the Ray node {node} that simulated {named(ranks)} is gone; the "
                "next launch uses the nodes that are left"
            ) from error
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from None


def _fill_there(agent: Any, layout: Layout, inputs: Sequence[Arrays], ranks: Sequence[int]) -> Any:
    """Have another node fill its stacks. What makes arrays makes them there, unless it refers to
    something that can't be pickled: then here, which gives the same arrays."""
    try:
        return agent.fill.remote(make_fill(layout, inputs, ranks, travels=True))
    except TypeError as error:
        if "serialize" not in str(error):
            raise
        made = all_made(inputs, ranks)
        return agent.fill.remote(make_fill(layout, made, ranks, travels=True))
