"""What a launch that has used up its world's timeout was doing, as an error.

A time-out is looked at between segments, loop rounds and messages, never per instruction, so a
launch ends some tenths of a second after its time (`placing` keeps segments that short), or when
its longest instruction does. Where a core was is known exactly all the same: see `Executor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from nki_dist.errors import DeadlockError
from nki_dist.runtime.deadlock import waiting
from nki_dist.runtime.messages import Wait, core_names, error_core

SHOWN: Final = 8  # places that a message lists


class Position(NamedTuple):
    """Where a core is in its program.

    Attributes:
        core, lnc: see Wait.
        instruction: title of the one under way, or of the last one; None before the first.
        location: its kernel line.
        done: instructions executed.
        rounds: of each dynamic loop the core is in, the innermost first: its line, and how often
            it has begun.
    """

    core: int
    lnc: int
    instruction: str | None
    location: str | None
    done: int
    rounds: tuple[tuple[str | None, int], ...] = ()


def _described(equal: Sequence[Position]) -> str:
    """Cores that are at one place, in words."""
    first, several = equal[0], len(equal) > 1
    name, verb = core_names([p.core for p in equal], first.lnc), "are" if several else "is"
    if first.instruction is None and not first.rounds:
        return f"{name} {'have' if several else 'has'}n't begun"
    parts = [f"{name} {verb} in {first.instruction or 'a loop'}"]
    if first.location:
        parts.append(f" at {first.location}")
    for n, (where, _) in enumerate(first.rounds):
        rounds = _span([p.rounds[n][1] for p in equal])
        parts.append(f", in round {rounds} of the loop at {where}")
    return "".join(parts) + f"; {_span([p.done for p in equal])} instructions done"


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _together(running: Sequence[Position]) -> list[list[Position]]:
    """By where they are; the fewer come first."""
    found: dict[Any, list[Position]] = {}
    for p in running:
        loops = tuple(where for where, _ in p.rounds)
        found.setdefault((p.instruction, p.location, loops), []).append(p)
    return sorted(found.values(), key=len)


def standing(running: Sequence[Position], waits: Sequence[Wait]) -> list[str]:
    """Where cores are, equal ones once; of those that run the fewer come first."""
    places = _together(running)
    lines = [_described(equal) for equal in places[:SHOWN]]
    more = sum(map(len, places[SHOWN:]))
    return lines + [f"{more:,} more run"] * bool(more) + waiting(waits)


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
    lines = standing(running, waits)
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
        first = _together(running)[0][0]
        where = first.location or next((line for line, _ in first.rounds if line), None)
        core = error_core(first.core, first.lnc)
        error.at(location=where, core=core, instruction=first.instruction)
    elif waits:
        wait = waits[0]
        core = error_core(wait.core, wait.lnc)
        error.at(location=wait.location, core=core, instruction=wait.title)
    return error


def _advice(running: Sequence[Position]) -> str:
    longer = "give a launch that is only long more time: World(timeout=) or NKI_DIST_TIMEOUT"
    if any(p.rounds for p in running):
        return f"a loop whose condition never becomes 0 has no end; {longer}"
    return longer
