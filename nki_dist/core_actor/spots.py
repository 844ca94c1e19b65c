"""Where the instances of a world can be: on nodes that it chooses, or in bundles of a group.

See `placement` for when which is used. A spot goes by a key, a node's id or a bundle's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from nki_dist.core_actor.nodes import (
    alive,
    free_in,
    here,
    on_node,
    processors,
    reserved,
    simulating,
    usable_nodes,
)
from nki_dist.core_actor.request import Request
from nki_dist.core_actor.reservation import Reservation, captured, wait_for_processors
from nki_dist.errors import LaunchError

Check: TypeAlias = Callable[[], None]
Key: TypeAlias = Any


class Room(NamedTuple):
    """What a spot has: processors, and for how many actors at most, if that is limited."""

    processors: int
    most: int | None = None


class Spots(Protocol):
    """See the module's docstring."""

    def assigned(self, sizes: Sequence[int]) -> list[Key]:
        """A spot for each unit of so many processes."""

    def room(self, key: Key) -> Room: ...

    def settled(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        """The spots of units that were on these, and their nodes, all of which live."""

    def living(self, gone: Collection[str]) -> set[str]:
        """The nodes on which units can stay."""

    def options(self, key: Key) -> dict[str, Any]: ...

    def over(self) -> bool:
        """Whether others must be found."""

    def close(self) -> None: ...

    def forget(self) -> None: ...


def spots_of(request: Request, check: Check) -> Spots:
    """Those of a world that asks for something, in the task or actor that this is."""
    group = request.group or captured()
    if group is not None:
        return Bundles(Reservation(group), request, check)
    if request.reserves:
        return Reserved(request, check)
    return Nodes(request, check)


class Nodes:
    """Nodes by their load; nothing is reserved."""

    def __init__(self, request: Request, check: Check) -> None:
        self._request = request
        if not any(map(processors, alive().values())):
            wait_for_processors(check)

    def assigned(self, sizes: Sequence[int], gone: Collection[str] = ()) -> list[Key]:
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

    def room(self, key: Key) -> Room:
        return Room(usable_nodes().get(str(key), 1))

    def settled(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        living = self.living(gone)
        lost = [n for n, key in enumerate(keys) if key not in living]
        for n, key in zip(lost, self.assigned([sizes[n] for n in lost], gone)):
            keys[n] = key
        return keys, [str(key) for key in keys]

    def living(self, gone: Collection[str]) -> set[str]:
        return set(usable_nodes(gone))

    def options(self, key: Key) -> dict[str, Any]:
        return {**on_node(str(key)), **self._request.inside}

    def over(self) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to give back."""

    forget = close


class Bundles:
    """Bundles of a placement group that is there."""

    def __init__(self, group: Reservation, request: Request, check: Check) -> None:
        self._group, self._request, self._check = group, request, check
        self._rooms: dict[int, Room] = {}

    def assigned(self, sizes: Sequence[int]) -> list[Key]:
        self._look()
        load: Counter[int] = Counter()
        found: list[Key] = []
        for size in sizes:
            bundle = min(self._rooms, key=lambda n: load[n] / max(1, self._rooms[n].processors))
            load[bundle] += size
            found.append(bundle)
        return found

    def _look(self) -> None:
        """What bundles have room for, without what already runs in them."""
        nodes, listed = self._group.nodes((), self._check), alive()
        for n, (bundle, node) in enumerate(zip(self._group.bundles, nodes)):
            most = self._request.fitting(free_in(node, self._group.id, n, bundle))
            if most != 0:
                count = int(bundle.get("CPU", 0)) or processors(listed[node])
                self._rooms[n] = Room(max(1, count), most)
        if not self._rooms:
            raise LaunchError(
                f"no bundle of placement group {self._group.id} has room for a process of this "
                f"world, which asks for {self._request.amounts}; its bundles are "
                f"{self._group.bundles}, and what runs in them takes part of that",
                code="core-not-reserved",
            )

    def room(self, key: Key) -> Room:
        return self._rooms[key]

    def settled(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        nodes = self._group.nodes(gone, self._check)
        return keys, [nodes[key] for key in keys]

    def living(self, gone: Collection[str]) -> set[str]:
        return set() if self._group.removed() else set(alive(gone))

    def options(self, key: Key) -> dict[str, Any]:
        return {**self._group.options(key), **self._request.inside}

    def over(self) -> bool:
        """The task or actor that it was of may have ended, and another use this process."""
        return self._request.group is None and self._group.removed()

    def close(self) -> None:
        """It belongs to somebody else."""

    forget = close


class Reserved:
    """Bundles of a group that Ray is asked for, one for each unit."""

    def __init__(self, request: Request, check: Check) -> None:
        self._request, self._check = request, check
        self._group: Reservation | None = None

    def assigned(self, sizes: Sequence[int]) -> list[Key]:
        return list(range(len(sizes)))

    def room(self, key: Key) -> Room:
        """By the nodes that are there: none of them may fit more, and the smallest is to fit."""
        nodes = [n for n in alive().values() if processors(n)]
        nodes = [n for n in nodes if self._request.suits(n["Labels"])] or nodes
        fit = [self._request.fitting(n["Resources"]) for n in nodes]
        counts = [processors(n) if f is None else f for n, f in zip(nodes, fit)]
        few = min(filter(None, counts), default=1)
        return Room(few, max(counts, default=0) or None if self._request.amounts else None)

    def settled(
        self, keys: list[Key], sizes: Sequence[int], gone: Collection[str]
    ) -> tuple[list[Key], list[str]]:
        if self._group is None or self._group.removed():
            self._group = Reservation.made(self._request, sizes)
        nodes = self._group.nodes(gone, self._check)
        return keys, [nodes[key] for key in keys]

    def living(self, gone: Collection[str]) -> set[str]:
        there = self._group is not None and not self._group.removed()
        return set(alive(gone)) if there else set()

    def options(self, key: Key) -> dict[str, Any]:
        assert self._group is not None
        return {**self._group.options(key), **self._request.inside}

    def over(self) -> bool:
        return False

    def close(self) -> None:
        if self._group is not None:
            self._group.remove()
        self._group = None

    def forget(self) -> None:
        self._group = None
