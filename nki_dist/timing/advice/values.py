"""Finds loads that fetch again what an earlier one fetched.

Two fetch the same if they agree in all but their tensors, read the same bytes of a tensor in HBM
that the program never writes, and leave them in the same part of tiles of one shape. A place is a
part of a tile that is always written as a whole, such as all of it; where writes overlap otherwise,
or their address is known at run time only, the tile is one place that never holds the same again.

Invariant: a repeated load is only found where what was there first could stay, because nothing else
is ever written to its place. Tensors that the kernel put into the same bytes share their places.

Doesn't see: work that is repeated on chip, copies in HBM.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from math import prod
from typing import Final, TypeAlias

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction
from nki_dist.timing.cells import overlap
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.footprint import Box, footprint, territories
from nki_dist.timing.order import OrderGraph

_PARTS: Final = 64  # of a tile that are told apart, at most
Place: TypeAlias = tuple[int, Box]


def repetitions(
    graph: OrderGraph, fixed: Mapping[int, Fixed], skip: Collection[int]
) -> dict[int, int]:
    """By position of a repeated load, the position of the first that fetched the same.

    Args:
        skip: positions that aren't executed.
    """
    places = _Places(graph)
    contents: dict[Place, set[Hashable]] = {}
    first: dict[Hashable, int] = {}
    left: dict[int, list[Place]] = {}
    found: dict[int, int] = {}
    for at, i in enumerate(graph.executed):
        reads, writes = graph.tensors[i.ordinal]
        source = at
        if _loads(i, reads, writes):
            given = [(a.storage.number, a.offset) for a in reads]
            into = [(a.offset, a.storage.shape) for a in writes]
            source = first.setdefault((id(fixed[i.ordinal]), *given, *into), at)
        left[at] = written = [places.of(a) for a in writes if a.region.on_chip]
        for n, place in enumerate(written):
            contents.setdefault(place, set()).add((source, n) if place[1] else (at, n))
        if source != at and at not in skip:
            found[at] = source
    once = {place for place, values in contents.items() if len(values) == 1 and place[1]}
    return {at: k for at, k in found.items() if once.issuperset((*left[at], *left[k]))}


def _loads(i: Instruction, reads: list[Access], writes: list[Access]) -> bool:
    """Whether all that an instruction does is to copy what nothing changes from HBM to tiles."""
    effects = INSTRUCTIONS[i.opcode].effects
    if i.engine != "dma" or effects.partial or i.after or any(a.dynamic for a in (*reads, *writes)):
        return False
    constant = all(not a.region.on_chip and not a.storage.written for a in reads)
    return constant and bool(writes) and all(a.region.on_chip for a in writes)


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


def _apart(boxes: list[Box]) -> bool:
    if len(boxes) > _PARTS:
        return False
    return not any(overlap(a, b) for n, a in enumerate(boxes) for b in boxes[:n])
