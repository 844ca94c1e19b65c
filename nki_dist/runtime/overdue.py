"""What a launch that has used up its world's timeout was doing, as an error.

A time-out is looked at between segments, loop rounds and messages, never per instruction, so a
launch ends some tenths of a second after its time (`linker` keeps segments that short), or when
its longest instruction does. Where a core was is known exactly all the same: see `Executor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from nki_dist.errors import DeadlockError
from nki_dist.runtime.messages import Wait, core_name

SHOWN: Final = 8  # cores that a message lists of each kind


class Position(NamedTuple):
    """Where a core is in its program.

    Attributes:
        core: as messages call it; see CoreSlot.name.
        instruction: title of the one under way, or of the last one; None before the first.
        location: its kernel line.
        done: instructions executed.
        rounds: of each dynamic loop the core is in, the innermost first: its line, and how often
            it has begun.
    """

    core: int | str
    instruction: str | None
    location: str | None
    done: int
    rounds: tuple[tuple[str | None, int], ...] = ()

    def describe(self) -> str:
        name = f"core {self.core}" if isinstance(self.core, int) else self.core
        if self.instruction is None and not self.rounds:
            return f"{name} hasn't begun"
        parts = [f"{name} is in {self.instruction or 'a loop'}"]
        if self.location:
            parts.append(f" at {self.location}")
        parts += [f", in round {n:,} of the loop at {where}" for where, n in self.rounds]
        return "".join(parts) + f"; {self.done:,} instructions done"


def overdue(
    seconds: float, running: Sequence[Position], waits: Sequence[Wait], ready: int = 0
) -> DeadlockError:
    """The error for a launch that made no end within so many seconds.

    Args:
        running: where cores that run are.
        waits: of cores that wait for others.
        ready: further cores that could go on and have their turn later.
    """
    waits = sorted(waits, key=lambda w: w.core)
    lines = [p.describe() for p in running[:SHOWN]]
    lines += [w.describe() for w in waits[:SHOWN]]
    more = len(running[SHOWN:]) + len(waits[SHOWN:])
    if more:
        lines.append(f"{more:,} more run or wait")
    if ready:
        lines.append(f"{ready:,} cores of the same process haven't had their turn")
    error = DeadlockError(
        f"the launch made no end within the world's timeout of {seconds:g} s\n  - "
        + "\n  - ".join(lines or ["no core has begun"])
        + "\n  "
        + _advice(running),
        code="timeout",
    )
    if running:
        first = running[0]
        where = first.location or next((line for line, _ in first.rounds if line), None)
        error.at(location=where, core=first.core, instruction=first.instruction)
    elif waits:
        core = waits[0].core
        name = core_name(core, waits[0].lnc) if waits[0].lnc else core
        error.at(location=waits[0].location, core=name, instruction=waits[0].title)
    return error


def _advice(running: Sequence[Position]) -> str:
    longer = "give a launch that is only long more time: World(timeout=) or NKI_DIST_TIMEOUT"
    if any(p.rounds for p in running):
        return f"a loop whose condition never becomes 0 has no end; {longer}"
    return longer
