"""Narrow tiles: neighbours that a loop works on one by one become one instruction.

Engines need some cycles to reach the operands of every instruction. Measured kernels take equally
long with tiles of 128, 256 and 512 columns, so AWS's compiler widens narrow ones; which it can't
widen isn't published. Taken as widened: what one line does to tiles of at least `LEAST` columns
often enough to fill `WIDE`.
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


def merge_narrow(graph: OrderGraph, plan: Plan) -> None:
    """Note the instructions that share the start of a wide one."""
    lines = Counter((i.location, i.opcode) for i in graph.executed)
    for i in {i.ordinal: i for i in graph.executed}.values():
        dst = i.args.get("dst")
        if i.engine not in _ENGINES or not isinstance(dst, Access):
            continue
        columns = dst.free_size
        if columns > WIDE:
            plan.merged[i.ordinal] = 1 / -(-columns // WIDE)
        if LEAST <= columns < WIDE and lines[i.location, i.opcode] * columns >= WIDE:
            plan.merged[i.ordinal] = WIDE / columns
            plan.note(i.location, "tiles merged")
