"""What AWS's compiler makes of a program, as far as its time is concerned.

Each pass works on a core's order graph and notes what it changes in a `Plan`, which the replay
follows. Values never depend on it: a plan is for simulated time and for what fits on chip. Which
liberties a compiler has depends on the release a kernel is written for: a kernel of Beta 1 says
what is computed, the compiler decides when and where; later releases keep close to the order of
the kernel's lines.

Doesn't model: engines or instructions chosen anew, addresses (but see `rotation`).
"""

from __future__ import annotations

from typing import Final

from nki_dist.arch import Arch
from nki_dist.timing.compiled.broadcasts import broadcast_by_products
from nki_dist.timing.compiled.copies import drop_copies
from nki_dist.timing.compiled.plan import Change, Plan
from nki_dist.timing.compiled.repeated import drop_repeated
from nki_dist.timing.compiled.spill import spill
from nki_dist.timing.compiled.tiles import tile
from nki_dist.timing.compiled.zeroing import drop_zeroing
from nki_dist.timing.order import OrderGraph

# How far an engine looks ahead of the first instruction it hasn't issued, in kernels of the
# releases after Beta 1. Chosen by the measured attention kernels of nki-library, whose times lie
# between those of the order written and of any order (docs/accuracy.md).
LOOK_AHEAD: Final = 16


def compiled(graph: OrderGraph, arch: Arch) -> Plan:
    """The plan of a core's program."""
    plan = Plan(reorders=True, look_ahead=0 if graph.program.beta1 else LOOK_AHEAD)
    drop_zeroing(graph, plan)
    if graph.program.beta1:
        drop_repeated(graph, plan, arch)
        drop_copies(graph, plan)
        broadcast_by_products(graph, plan, arch)
        tile(graph, plan)
    spill(graph, plan, arch)
    return plan


__all__ = ["Change", "Plan", "compiled"]
