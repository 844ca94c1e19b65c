"""Which executed instructions make again what an earlier one made.

Two make the same if they agree in all but their tensors, read the same values, and leave the result
in the same part of tiles of one shape. A value is named by what made it, so chains of equal work
have equal names; tensors in HBM that the program never writes have one for good. A place is a part
of a tile that is always written as a whole, such as all of it; where writes overlap otherwise, or
their address is known at run time only, the tile is one place whose names never come again.

Invariant: repeated work is only found where what was there first could stay, because nothing else
is ever written to its place, or where it could have a tile of its own, because the place is a tile
that is always written as a whole. Filling a tile that is then added to isn't such work. Tensors
that the kernel put into the same bytes share their places.

Doesn't see: equal values made by different instructions or from copies in HBM, results of
instructions that may leave elements as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from math import prod
from typing import Final, TypeAlias

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, VirtualRegister
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.footprint import Box, footprint, territories
from nki_dist.timing.order import OrderGraph

_PARTS: Final = 64  # of a tile that are told apart, at most
Place: TypeAlias = tuple[int, Box]


def repetitions(
    graph: OrderGraph, fixed: Mapping[int, Fixed], skip: Collection[int] = ()
) -> tuple[dict[int, int], set[int]]:
    """By position of repeated work, the position of the first that made the same.

    Args:
        skip: positions that aren't executed.

    Returns:
        besides, those whose result needs a tile of its own.
    """
    places = _Places(graph)
    holds: dict[Place, Hashable] = {}
    made: dict[Place, set[Hashable]] = {}
    first: dict[Hashable, int] = {}
    left: dict[int, list[Place]] = {}
    found: dict[int, int] = {}
    for at, i in enumerate(graph.executed):
        reads, writes = graph.tensors[i.ordinal]
        name: Hashable = None
        if _repeatable(i, writes):
            values = [places.value(a, holds) for a in reads]
            if None not in values:
                into = [(a.offset, a.storage.shape) for a in writes]
                name = (id(fixed[i.ordinal]), *values, *into)
        known = at if name is None else first.setdefault(name, at)
        left[at] = written = [places.of(a) for a in writes if a.region.on_chip]
        for n, place in enumerate(written):
            holds[place] = (known, n) if place[1] else (at, n)
            made.setdefault(place, set()).add(holds[place])
        if known != at and at not in skip:
            found[at] = known
    once = {place for place, values in made.items() if len(values) == 1 and place[1]}
    again: dict[int, int] = {}
    apart: set[int] = set()
    for at, k in found.items():
        if once.issuperset((*left[at], *left[k])):
            again[at] = k
        elif not INSTRUCTIONS[graph.executed[at].opcode].fills and all(map(places.whole, left[at])):
            again[at] = k
            apart.add(at)
    return again, apart


def _repeatable(i: Instruction, writes: list[Access]) -> bool:
    """Whether all that an instruction does is to write tiles, by its operands alone."""
    spec = INSTRUCTIONS[i.opcode]
    effects = spec.effects
    if spec.synchronises or effects.partial or i.after or i.accumulation in ("add", "runtime"):
        return False
    if effects.state is not None and effects.states(i):
        return False
    if VirtualRegister in map(type, i.args.values()) or not writes:
        return False
    return all(a.region.on_chip and a.dynamic is None for a in writes)


class _Places:
    """Parts of tiles on chip."""

    def __init__(self, graph: OrderGraph) -> None:
        self._keys, self._territories = territories(graph.program.storages)
        self._boxes: dict[int, Box] = {}  # by identity of the access
        parts: dict[int, dict[Box, None]] = {}
        mixed: set[int] = set()
        for _, writes in graph.tensors.values():
            for a in writes:
                if a.region.on_chip:
                    key, box = self._keys[a.storage.number], self._box(a)
                    parts.setdefault(key, {})[box] = None
                    sides = zip(box[::2], box[1::2], strict=True)
                    if (
                        a.dynamic is not None
                        or prod([high - low for low, high in sides]) != a.nbytes
                    ):
                        mixed.add(key)
        self._parts = {
            key: [*boxes] if key not in mixed and _apart([*boxes]) else []
            for key, boxes in parts.items()
        }

    def _box(self, a: Access) -> Box:
        box = self._boxes.get(id(a))
        if box is None:
            box = self._boxes[id(a)] = footprint(a, self._territories[a.storage.number], {})
        return box

    def of(self, a: Access) -> Place:
        """Where a write goes."""
        key = self._keys[a.storage.number]
        return key, self._box(a) if self._parts[key] else ()

    def whole(self, place: Place) -> bool:
        """Whether a place is all that is ever written of its tile at once."""
        return len(self._parts[place[0]]) == 1

    def value(self, a: Access, holds: Mapping[Place, Hashable]) -> Hashable:
        """A name of what a read gets; None if it may be something else the next time."""
        if a.dynamic is not None and isinstance(a.dynamic.source, VirtualRegister):
            return None
        number = a.storage.number
        if not a.region.on_chip:
            return None if a.storage.written else (number, a.offset)
        key, box = self._keys[number], self._box(a)
        parts = self._parts.get(key, ())
        if len(parts) < 2:
            return (a.offset, holds.get((key, parts[0] if parts else ())))
        touched = [part for part in parts if _overlap(part, box)]
        return (a.offset, *[(part, holds.get((key, part))) for part in touched])


def _apart(boxes: list[Box]) -> bool:
    if len(boxes) > _PARTS:
        return False
    return not any(_overlap(a, b) for n, a in enumerate(boxes) for b in boxes[:n])


def _overlap(a: Box, b: Box) -> bool:
    return all(a[n] < b[n + 1] and b[n] < a[n + 1] for n in range(0, len(a), 2))
