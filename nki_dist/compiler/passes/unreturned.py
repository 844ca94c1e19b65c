"""Results that nobody can see: stored to shared_hbm by a kernel that returns nothing.

The usual reason is a forgotten `return`. A kernel has other effects as well: it may write to its
arguments or print; then nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.compiler.notes import note
from nki_dist.errors import UnreturnedOutputWarning
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import State
from nki_dist.program import Program
from nki_dist.program.instruction import instructions
from nki_dist.program.walk import returned


def warn_of_unreturned(programs: Sequence[Program]) -> None:
    """Note a warning if all that the kernel did is lost."""
    for program in programs:
        if next(iter(returned(program.outputs)), None) is not None or _is_seen(program):
            return
    first = programs[0]
    stored = [s for s in first.storages if s.role == "shared" and s.written]
    if stored:
        last = stored[-1]
        note(
            first,
            UnreturnedOutputWarning(
                f"the kernel stores to {last.label} and returns nothing, so its results are lost",
                location=first.where(last.location),
                hint=f"`return {last.called or last.name or '...'}` gives it to the caller",
            ),
        )


def _is_seen(program: Program) -> bool:
    """Whether the caller sees an effect: an argument was written, or something printed."""
    if any(s.role == "input" and s.written for s in program.storages):
        return True
    effects = {i.opcode for i in instructions(program.body)}
    return any(INSTRUCTIONS[opcode].effects.state is State.PRINTED for opcode in effects)
