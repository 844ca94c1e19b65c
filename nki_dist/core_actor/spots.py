"""Chooses where on a Ray cluster the instances of a world run: on nodes, or in reserved bundles.

See `placement` for when which is used. A spot goes by a key, a node's id or a bundle's number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

from nki_dist.core_actor.nodes import (
    alive,
    free_in,
    on_node,
    processors,
    reserved,
    simulating,
    usable_nodes,
)
from nki_dist.core_actor.request import Request
from nki_dist.core_actor.reservation import (
    Check,
    Reservation,
    captured,
    wait_for_processors,
)
from nki_dist.errors import LaunchError
from nki_dist.hbm.nodes import here
from nki_dist.runtime.ray_thread import ray_thread

Key: TypeAlias = Any


class Capacity(NamedTuple):
    """What a spot has: processors, and for how many actors at most, if that is limited."""

    processors: int
    most: int | None = None


class Spots(ABC):
    """See the module's docstring.

    Args:
        request: what the world asks for.
        check: raises if the Ray session is lost.
    """

    def __init__(self, request: Request, check: Check) -> None:
        self._request, self._check = request, check

    @abstractmethod
    def assigned(self, sizes: Sequence[int]) -> list[Key]:
        """A spot for each unit of so many processes."""

    @abstractmethod
    def capacity(self, key: Key) -> Capacity:
        """What a spot has."""

    @abstractmethod
    def placed(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        """The spots of units that were on these, and their nodes, all of which live.

        Raises:
            LaunchError: the wait for a reservation takes too long, or there isn't as much room.
        """

    @abstractmethod
    def options(self, key: Key) -> dict[str, Any]:
        """Ray's options of an actor there."""

    def living(self, gone: Collection[str]) -> set[str]:
        """The nodes on which units can stay."""
        return set(alive(gone))

    def over(self) -> bool:
        """Whether others must be found."""
        return False

    def close(self) -> None:  # noqa: B027 (most reserve nothing)
        """Give back what was reserved."""

    def forget(self) -> None:  # noqa: B027
        """The session is over, and with it what was reserved."""


def spots_of(request: Request, check: Check) -> Spots:
    """Those of a world that asks for something, in the task or actor that this is."""
    group = request.group or captured()
    if group is not None:
        return Bundles(request, check, Reservation(group, check))
    if request.reserves:
        return Reserved(request, check)
    return ByLoad(request, check)


class ByLoad(Spots):
    """Nodes by their load; nothing is reserved."""

    def assigned(self, sizes: Sequence[int], gone: Collection[str] = ()) -> list[Key]:
        wait_for_processors(self._check, gone)
        nodes = usable_nodes(gone)
        if len(nodes) == 1:
            return [*nodes] * len(sizes)
        load = Counter(simulating())
        load.update(reserved())
        if len(sizes) == 1 and load[here()] + sizes[0] <= nodes.get(here(), 0):
            return [here()]
        found: list[Key] = []
        for size in sizes:
            node = min(nodes, key=lambda n: load[n] / nodes[n])
            load[node] += size
            found.append(node)
        return found

    def capacity(self, key: Key) -> Capacity:
        return Capacity(usable_nodes().get(key, 1))

    def placed(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        living = self.living(gone)
        lost = [n for n, key in enumerate(keys) if key not in living]
        for n, key in zip(lost, self.assigned([sizes[n] for n in lost], gone) if lost else ()):
            keys[n] = key
        return keys, [*keys]

    def options(self, key: Key) -> dict[str, Any]:
        return {**on_node(key), **self._request.inside}


class Bundles(Spots):
    """Bundles of a placement group that is there."""

    def __init__(self, request: Request, check: Check, group: Reservation | None = None) -> None:
        super().__init__(request, check)
        self._group = group
        self._capacities: dict[int, Capacity] = {}

    def assigned(self, sizes: Sequence[int]) -> list[Key]:
        group = self._there
        nodes, listed = group.nodes(()), alive()
        for n, (bundle, node) in enumerate(zip(group.bundles, nodes)):
            most = self._request.fitting(free_in(node, group.id, n, bundle))
            if most != 0:
                count = int(bundle.get("CPU", 0)) or processors(listed[node])
                self._capacities[n] = Capacity(max(1, count), most)
        load: Counter[int] = Counter()
        found: list[Key] = []
        for size in sizes:
            key = min(
                self._capacities,
                key=lambda n: load[n] / max(1, self._capacities[n].processors),
                default=None,
            )
            if key is None:
                raise self._lacking()
            load[key] += size
            found.append(key)
        return found

    def capacity(self, key: Key) -> Capacity:
        return self._capacities[key]

    def placed(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        demand: Counter[int] = Counter()
        for key, size in zip(keys, sizes):
            demand[key] += size
        most_of = {key: spot.most for key, spot in self._capacities.items()}
        if any(count > most for k, count in demand.items() if (most := most_of.get(k)) is not None):
            raise self._lacking()
        nodes = self._there.nodes(gone)
        return keys, [nodes[key] for key in keys]

    def living(self, gone: Collection[str]) -> set[str]:
        return set() if self._group is None or self._group.removed() else super().living(gone)

    def options(self, key: Key) -> dict[str, Any]:
        return {**self._there.options(key), **self._request.inside}

    def over(self) -> bool:
        """The task or actor that it was of may have ended, and another use this process."""
        if self._request.group is not None:
            return False
        now = captured()
        return now is None or now.id.hex() != self._there.id or self._there.removed()

    @property
    def _there(self) -> Reservation:
        assert self._group is not None
        return self._group

    def _lacking(self) -> LaunchError:
        group = self._there
        return LaunchError(
            f"placement group {group.id} has no room for the processes of this world, each of "
            f"which asks for {self._request.amounts}; its bundles are {group.bundles}, and what "
            "runs in them takes part of that. Make bundles larger, or fewer processes "
            "(cores_per_actor=)",
            code="core-not-reserved",
        )


class Reserved(Bundles):
    """Bundles of a group that Ray is asked for, one for each unit."""

    def assigned(self, sizes: Sequence[int]) -> list[Key]:
        return list(range(len(sizes)))

    def capacity(self, key: Key) -> Capacity:
        """By the nodes that are there: none of them may fit more, and the smallest is to fit."""
        nodes = [n for n in alive().values() if processors(n)]
        nodes = [n for n in nodes if self._request.suits(n["Labels"])] or nodes
        fit = [self._request.fitting(n["Resources"]) for n in nodes]
        counts = [processors(n) if f is None else f for n, f in zip(nodes, fit)]
        few = min(filter(None, counts), default=1)
        return Capacity(few, max(counts, default=0) or None if self._request.amounts else None)

    def placed(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        if self._group is None or self._group.removed():
            ray_thread().do(lambda: self._reserve(sizes))  # whole, whoever interrupts the wait
        return super().placed(keys, sizes, gone)

    def _reserve(self, sizes: Sequence[int]) -> None:
        self._group = Reservation.create(self._request, sizes, self._check)

    def over(self) -> bool:
        return False

    def close(self) -> None:
        ray_thread().do(self._give_back)  # after a reservation that was begun

    def _give_back(self) -> None:
        if self._group is not None:
            self._group.remove()
        self._group = None

    def forget(self) -> None:
        self._group = None
