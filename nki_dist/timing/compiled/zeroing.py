"""Zeroes written to PSUM before a sum of products: the first product replaces them instead.

Follows: the accumulate flag of nc_matmul, which AWS's compiler sets itself (ISA).
"""

from __future__ import annotations

from collections.abc import Mapping

from nki_dist.isa.spec import Spec
from nki_dist.program import MemoryRegion
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph


def drop_zeroing(graph: OrderGraph, table: Mapping[str, Spec], plan: Plan) -> None:
    """Drop fills with 0 of PSUM that only sums of products read."""
    zeroes = set()
    for ordinal, (_, writes) in graph.tensors.items():
        if len(writes) == 1 and writes[0].region is MemoryRegion.psum:
            zeroes.add(ordinal)
    filling = {
        at
        for at, i in enumerate(graph.executed)
        if i.ordinal in zeroes and table[i.opcode].fills and not i.args[table[i.opcode].fills]
    }
    read: set[int] = set()
    kept: set[int] = set()
    for at, i in enumerate(graph.executed):
        for p in graph.data[at]:
            if p in filling:
                read.add(p)
                if not table[i.opcode].accumulates or i.accumulation == "replace":
                    kept.add(p)
    for at in sorted((filling & read) - kept):
        plan.dropped.add(at)
        plan.note(graph.executed[at].location, "zeroing dropped")
