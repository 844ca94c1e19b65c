"""Leaves out zeroes written to PSUM before a sum of products: the first product replaces them.

A product overwrites or adds, and so reads nothing in the order graph: it follows the fill because
both write. A fill is left out where products cover all of it before anything else reads it.

Follows: the accumulate flag of nc_matmul, which AWS's compiler sets itself (ISA).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import MemoryRegion
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph


def drop_zeroing(graph: OrderGraph, plan: Plan) -> None:
    """Drop fills with 0 of PSUM that only sums of products follow."""
    psum = MemoryRegion.psum
    zeroes = {
        ordinal
        for ordinal, (_, writes) in graph.tensors.items()
        if len(writes) == 1 and writes[0].storage.region is psum
    }
    fills = {name: spec.fills for name, spec in INSTRUCTIONS.items() if spec.fills}
    filling = {
        at
        for at, i in enumerate(graph.executed)
        if i.opcode in fills and i.ordinal in zeroes and not i.args[fills[i.opcode]]
    }
    if not filling:
        return
    needed: set[int] = set()
    covered: dict[int, dict[Hashable, int]] = {at: {} for at in filling}  # where -> elements
    for at, i in enumerate(graph.executed):
        product = INSTRUCTIONS[i.opcode].accumulates
        for p in graph.data[at]:
            if p in filling and not product and not _whole(graph, p, covered[p]):
                needed.add(p)
        for p in (*graph.data[at], *graph.reuse[at]) if product else ():
            if p in filling:
                for a in graph.tensors[i.ordinal][1]:
                    covered[p][a.storage.number, a.offset, a.shape, a.strides] = a.size
    for at in sorted(filling - needed):
        if _whole(graph, at, covered[at]):
            plan.dropped.add(at)
            plan.note(graph.executed[at].location, "zeroing dropped")


def _whole(graph: OrderGraph, at: int, covered: Mapping[Hashable, int]) -> bool:
    """Whether products cover all that a fill writes; different ones are taken to lie apart."""
    (filled,) = graph.tensors[graph.executed[at].ordinal][1]
    return sum(covered.values()) >= filled.size
