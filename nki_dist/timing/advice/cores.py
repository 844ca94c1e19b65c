"""A rule about cores: some have more to do than others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nki_dist.timing.advice.suspect import (
    Change,
    Spent,
    Suspect,
    busy_ns,
    costliest,
    durations,
    executed,
)
from nki_dist.timing.fixed import Fixed, Part
from nki_dist.timing.timeline import Timeline

_UNEQUAL: Final = 1.1  # times the mean that the busiest core works


def unbalanced(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Cores whose busiest engine works longer than that of the others."""
    if len(timeline.cores) < 2:
        return None
    # Of DMA, the busiest of its engines.
    work = [max(0.0, *core.dma_busy, *busy_ns(core).values()) for core in timeline.cores]
    mean = sum(work) / len(work)
    most = max(range(len(work)), key=work.__getitem__)
    if work[most] <= _UNEQUAL * mean:
        return None
    core = timeline.cores[most]
    lines = durations(x for x in executed(timeline) if x[0] is core and x[2].engine != "cc")
    return Suspect(
        "unbalanced cores",
        f"the busiest engine of rank {core.seat.rank} core {core.seat.core} works "
        f"{work[most] / 1000:,.1f} us, that of a core on average {mean / 1000:,.1f} us; divide the "
        "work evenly",
        costliest(lines, spent),
        "a launch is over when its last core is",
        [_scaled([mean / w if w else 1.0 for w in work])],
        timeline.total_ns,
        by_core=True,
    )


def _scaled(factors: Sequence[float]) -> Change:
    def change(number: int, part: Part) -> Part:
        return part._replace(fixed={n: _times(f, factors[number]) for n, f in part.fixed.items()})

    return change


def _times(fixed: Fixed, factor: float) -> Fixed:
    t = fixed.transfer
    if t is not None:
        t = replace(t, parts=tuple((e, ns * factor) for e, ns in t.parts))
    return replace(fixed, occupancy=fixed.occupancy * factor, transfer=t)
