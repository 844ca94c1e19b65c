"""A rule about cores: some have more to do than others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from nki_dist.program import Instruction
from nki_dist.timing.advice.suspect import Change, Spent, Suspect, costliest, line_of, refixed
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import CoreTimeline, Timeline

_UNEQUAL: Final = 1.1  # times the mean that the busiest core works


def unbalanced(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Cores whose busiest engine works longer than that of the others."""
    if len(timeline.cores) < 2:
        return
    work = [_work(core) for core in timeline.cores]
    mean = sum(work) / len(work)
    most = max(range(len(work)), key=work.__getitem__)
    if work[most] <= _UNEQUAL * mean:
        return
    core = timeline.cores[most]
    durations: dict[str, float] = {}
    for at, i in enumerate(core.graph.executed):
        if at not in core.dropped and i.engine != "cc":
            line = line_of(core, i)
            durations[line] = durations.get(line, 0.0) + core.end[at] - core.start[at]
    yield Suspect(
        "unbalanced cores",
        f"the busiest engine of rank {core.seat.rank} core {core.seat.core} works "
        f"{work[most] / 1000:,.1f} us, that of a core on average {mean / 1000:,.1f} us; divide the "
        "work evenly",
        costliest(durations, spent, durations),
        "a launch is over when its last core is",
        [_scaled([mean / w if w else 1.0 for w in work])],
        timeline.total_ns,
        by_core=True,
    )


def _work(core: CoreTimeline) -> float:
    """ns that the busiest engine works; of DMA, the busiest of its engines."""
    busy: dict[str, float] = {"dma": max(core.dma_busy, default=0.0)}
    for at, i in enumerate(core.graph.executed):
        if at not in core.dropped and i.engine not in ("dma", "cc"):
            took = core.busy_end.get(at, core.end[at]) - core.start[at]
            busy[i.engine] = busy.get(i.engine, 0.0) + took
    return max(busy.values())


def _scaled(factors: Sequence[float]) -> Change:
    def change(number: int, part: Part) -> Part:
        factor = factors[number]

        def scaled(i: Instruction, fixed: Fixed) -> Fixed:
            t = fixed.transfer
            if t is not None:
                t = replace(t, parts=tuple((e, ns * factor) for e, ns in t.parts))
            return replace(fixed, occupancy=fixed.occupancy * factor, transfer=t)

        return refixed(part, scaled)

    return change
