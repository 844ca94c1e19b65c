"""Merges narrow tiles and splits wide ones into the width that AWS's compiler works with.

Engines need some cycles to reach the operands of every instruction, so wide instructions would be
the cheapest. Measured kernels say otherwise: they take equally long with tiles of 128, 256 and 512
columns, and longer rather than shorter with 896 and more. So the elementwise work of a Beta 1
kernel is taken to be done in instructions of `WIDE` columns; what the compiler can't merge isn't
published. Taken as merged: what one line does to tiles of at least `LEAST` columns often enough to
fill `WIDE`.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from nki_dist.program import Access
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph

WIDE: Final = 512  # columns; a float32 tile of a PSUM bank
LEAST: Final = 128
_ENGINES: Final = frozenset({"vector", "scalar"})


def tile(graph: OrderGraph, plan: Plan) -> None:
    """Note the instructions that share the start of one, or have several."""
    lines = Counter((i.location, i.opcode) for i in graph.executed)
    for i in {i.ordinal: i for i in graph.executed}.values():
        dst = i.args.get("dst")
        if i.engine not in _ENGINES or not isinstance(dst, Access):
            continue
        columns = dst.free_size
        if columns > WIDE:
            plan.starts[i.ordinal] = -(-columns // WIDE)
            plan.note(i.location, "tiles split")
        elif LEAST <= columns < WIDE <= lines[i.location, i.opcode] * columns:
            plan.starts[i.ordinal] = columns / WIDE
            plan.note(i.location, "tiles merged")
