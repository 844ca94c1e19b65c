"""Which cores share an actor, and which Ray node simulates which instance.

Invariant: ranks of an instance are on one node, so a stack is never split; results don't depend on
any of this. Three ways, by what a world asks for:

- It reserves nothing, as by default: actors take no processors, because they are simulated cores.
  A single instance stays on the launcher's node, whose stacks the launcher reads without copying,
  while that has a processor for each core (16 of them in larger ones); every other goes to the node
  with the least load, of which what reserves is counted twice, as a process and as what it has.
  Nodes without processors (a head that only manages) simulate nothing, unless there are no others.
- It reserves (`actor_options`): Ray finds a node for each instance, in a placement group.
- It is given a placement group, or made in a task that captures its children in one: it stays in
  its bundles.

Nodes are looked at when a world starts and when it lost one; one that joins later is used by worlds
that start later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from nki_dist.core_actor.request import Request
from nki_dist.core_actor.reservation import Check
from nki_dist.core_actor.spots import ByLoad, Key, Spots, spots_of
from nki_dist.errors import LaunchError
from nki_dist.isa.core import CoreSlot

ACTOR_PER_CORE = 16  # cores up to which each gets a process of its own


def pack(
    every: Sequence[CoreSlot],
    lnc: int,
    per_actor: str | int,
    processors: int = 1,
    cores: int | None = None,
    most: int | None = None,
) -> list[list[CoreSlot]]:
    """Which cores share an actor. The cores of a rank are never split between packs of several.

    Args:
        every: cores to pack, all of some ranks.
        per_actor: how many, or "auto": one while that is sensible, then one actor per processor.
        processors: that are there for these cores.
        cores: of the whole world; these are all by default.
        most: actors that there is room for, if that is limited.
    """
    if per_actor == "auto":
        most = len(every) if most is None else max(1, most)
        few = (cores or len(every)) <= ACTOR_PER_CORE and len(every) <= most
        ranks = -(-len(every) // lnc)
        size = 1 if few else -(-ranks // max(1, min(processors, most))) * lnc
    else:
        size = 1 if per_actor == 1 else -(-int(per_actor) // lnc) * lnc
    return [list(every[i : i + size]) for i in range(0, len(every), size)]


class Placement:
    """The cores of a world in packs, and the node of each instance.

    Args:
        every: all cores.
        lnc: cores per rank.
        per_actor: as in `pack`.
        per_instance: ranks of an instance.
        request: what the world asks for.
        check: raises if the Ray session is lost while this waits.

    Attributes:
        packs: cores that share an actor.
        nodes: for each pack its node.

    Raises:
        LaunchError: what is asked for can't be had, or takes too long.
    """

    def __init__(
        self,
        every: Sequence[CoreSlot],
        lnc: int,
        per_actor: str | int,
        per_instance: int,
        request: Request,
        check: Check,
    ) -> None:
        self._request, self._check = request, check
        size = per_instance * lnc
        units = [every[i : i + size] for i in range(0, len(every), size)]
        self._spots: Spots = spots_of(request, check)
        keys = self._spots.assigned([min(len(unit), ACTOR_PER_CORE) for unit in units])
        if len(set(keys)) == 1:  # they share its processors
            units, keys = [every], keys[:1]
        sharing = Counter(keys)
        self.packs: list[list[CoreSlot]] = []
        self._processes: list[int] = []  # of each unit, which stays on one node
        for unit, key in zip(units, keys):
            spot = self._spots.capacity(key)
            share = None if spot.most is None else spot.most // sharing[key]
            packs = pack(unit, lnc, per_actor, spot.processors // sharing[key], len(every), share)
            self.packs += packs
            self._processes.append(len(packs))
        self._unit_of = [u for u, count in enumerate(self._processes) for _ in range(count)]
        self._keys: list[Key] = keys
        self.nodes: list[str] = []
        self.choose()

    def choose(self, gone: Collection[str] = ()) -> None:
        """Find the node of each unit; those whose node is alive stay there: so do their actors.

        Args:
            gone: nodes that have ended, which Ray may not know yet.
        """
        if self._spots.over():
            self._spots = spots_of(self._request, self._check)
            self._keys = self._spots.assigned(self._processes)
        try:
            self._keys, nodes = self._spots.placed(self._keys, self._processes, gone)
        except BaseException:
            self.close()
            raise
        self.nodes[:] = [nodes[unit] for unit in self._unit_of]

    def lost(self, gone: Collection[str] = ()) -> bool:
        """Whether a node of this world is gone, or its placement group; `gone` as in `choose`."""
        return self._spots.over() or not set(self.nodes) <= self._spots.living(gone)

    @property
    def plain(self) -> bool:
        """Whether any actor of the node will do."""
        return not self._request.options and isinstance(self._spots, ByLoad)

    def options(self, n: int) -> dict[str, Any]:
        """Ray's options of the actor of pack n."""
        return self._spots.options(self._keys[self._unit_of[n]])

    def close(self) -> None:
        """Give back what was reserved. `choose` reserves it again."""
        self._spots.close()

    def forget(self) -> None:
        """The session is over, and with it what was reserved."""
        self._spots.forget()

    def near(self, n: int, transport: str) -> frozenset[int]:
        """The packs that pack n reaches through shared memory.

        Args:
            transport: World's argument.

        Raises:
            LaunchError: it can't be had here.
        """
        if transport == "ring" and len(set(self.nodes)) > 1:
            raise LaunchError(
                "transport='ring' is for processes of one machine; this world has "
                f"{len(set(self.nodes))} Ray nodes: use transport='auto'",
                code="ring-transport",
                numbers={"nodes": len(set(self.nodes))},
            )
        if transport == "messages":
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
