"""Leaves out copies of results: the instruction that makes a result writes it to its last place.

In Beta 1 instructions return a new tile, and a kernel assigns it to a part of another: written out,
that is a copy. Whoever makes the tile can write to that part itself, which is what a compiler does.
A copy is left out where it is all that reads a tile, and one instruction of Vector, Scalar or
GpSimd is all that writes it. One that converts is left out as well: engines compute in float32 and
convert what they write. Products aren't meant: Tensor writes to PSUM only.

Follows: measured kernels that would be slower than on a device with such copies alone; kernels
that split float32 tiles into two of bfloat16, where profiles show Vector and Scalar active for two
of the three instructions of a split (docs/accuracy.md, kda/swiglu).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph, times_written

_COMPUTE: Final = frozenset({"vector", "scalar", "gpsimd"})


def drop_copies(graph: OrderGraph, plan: Plan) -> None:
    """Drop the only reader of a tile where it copies all of it, and its maker could do so."""
    read, written = Counter[int](), times_written(graph)
    writers: dict[int, int] = {}  # storage -> position of the last instruction that wrote it
    found: list[tuple[int, int, int]] = []  # position, the tile copied, where to
    for at, i in enumerate(graph.executed):
        reads, writes = graph.tensors[i.ordinal]
        for a in reads:
            read[a.storage.number] += 1
        if i.engine in _COMPUTE and INSTRUCTIONS[i.opcode].effects.copies and len(reads) == 1:
            source, target = reads[0], writes[0]
            maker = writers.get(source.storage.number, -1)
            # What was made a round before and kept still has to come to its new place.
            there = maker >= 0 and maker not in plan.dropped
            if there and _can_write(graph.executed[maker], source, target):
                found.append((at, source.storage.number, target.storage.number))
        for a in writes:
            writers[a.storage.number] = at
    for at, source_number, target_number in found:
        if read[source_number] == written[source_number] == 1:
            plan.dropped.add(at)
            plan.same[source_number] = target_number
            plan.note(graph.executed[at].location, "copy dropped")


def _can_write(maker: Instruction, source: Access, target: Access) -> bool:
    """Whether the instruction that made a tile could write all of it to where it is copied."""
    whole = source.offset == 0 and source.size == source.storage.nbytes // source.dtype.itemsize
    plain = source.dynamic is None and target.dynamic is None
    return whole and plain and target.region.on_chip and maker.engine in _COMPUTE
