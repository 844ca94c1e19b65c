"""Executions that don't need each other, of which one instruction could do several at once.

An execution's depth is how many of those asked about lie on the longest path of results that leads
to it. Two of one kind with equal depth don't need each other's results, so a kernel with larger
tiles, those of several rounds of a loop, has one instruction for both. Only results count: which
memory rounds use in turn is the kernel's choice.

Invariant: rounds of a dynamic loop aren't joined, since nobody knows how many there will be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import TypeAlias

from nki_dist.isa import INSTRUCTIONS
from nki_dist.timing.order import OrderGraph

Level: TypeAlias = tuple[int, int]
"""A round of dynamic loops, and a depth."""
Kind: TypeAlias = tuple[int, ...]
"""A kernel line, an object that instructions with all but their tensors in common share, and what
else tells those apart that couldn't be one."""


def depths(graph: OrderGraph, asked: Mapping[int, Kind]) -> dict[Kind, list[tuple[int, Level]]]:
    """For each kind its executions in order: position, round and depth."""
    found: dict[Kind, list[tuple[int, Level]]] = {kind: [] for kind in asked.values()}
    depth_of: list[int] = []
    for at, i in enumerate(graph.executed):
        before: Sequence[int] = graph.data[at]
        kind = asked.get(i.ordinal)
        if kind is None:
            depth_of.append(max([depth_of[p] for p in before], default=0))
            continue
        if INSTRUCTIONS[i.opcode].effects.states(i):
            before = _needed(graph, at)
        depth = 1 + max([depth_of[p] for p in before], default=0)
        found[kind].append((at, (graph.rounds[at], depth)))
        depth_of.append(depth)
    return found


def _needed(graph: OrderGraph, at: int) -> list[int]:
    """What writes tensors that are read here; others only used the engine's registers before."""
    read = {a.storage.number for a in graph.tensors[graph.executed[at].ordinal][0]}
    writes = ((p, graph.tensors[graph.executed[p].ordinal][1]) for p in graph.data[at])
    return [p for p, written in writes if any(a.storage.number in read for a in written)]


def at_once(sizes: Collection[int], most: int) -> float:
    """How many executions one does on average, where it can do `most` of a group."""
    return sum(sizes) / sum(ceil(n / most) for n in sizes)
