"""Cores as programs find them: at a place in the world, with registers, able to reach others."""

from __future__ import annotations

from nki_dist.collectives.execute import link
from nki_dist.isa.core import Core, CoreSlot, CoreState, Wires
from nki_dist.program import Program


def make_core(program: Program, slot: CoreSlot) -> Core:
    """A core for one program, not connected yet (see Scheduler.add)."""
    return Core(slot, CoreState(program.registers), Wires(link))
