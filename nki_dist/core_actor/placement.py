"""Which Ray node simulates which instance.

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
from collections.abc import Collection, Sequence

from nki_dist.core_actor import bell
from nki_dist.core_actor.nodes import usable_nodes
from nki_dist.errors import LaunchError
from nki_dist.isa.core import CoreSlot

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
