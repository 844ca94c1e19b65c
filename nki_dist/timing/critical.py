"""What bounded a launch: the chain of events that leads to its last result.

The chain is followed backwards: from the last result to the instruction that gave it, to whatever
fixed that instruction's start, and so on. Invariant: the pieces follow each other without gap or
overlap, so their durations add up to the launch's total. There may be other chains nearly as long;
they aren't reported.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, NamedTuple

from nki_dist.timing.timeline import DATA, ISSUE, MEMORY, RESOURCE, Timeline

# What a piece of the chain was spent on, beside working on an engine ("tensor", "dma data", ...).
PIPELINE: Final = "result latency"
SEMAPHORE: Final = "semaphores"
TABLE: Final = "activation tables"
DMA_LATENCY: Final = "dma latency"
DMA_BUSY: Final = "dma engines busy"
PORTS: Final = "memory ports"
MESSAGES: Final = "messages"
CAPACITY: Final = "room on chip"
_WAITED_FOR: Final = MappingProxyType({RESOURCE: PORTS, MEMORY: CAPACITY})


class Piece(NamedTuple):
    """A stretch of the critical path: what core `core` did or waited for, for an instruction."""

    core: int
    position: int
    start: float
    end: float
    kind: str


def critical_path(timeline: Timeline) -> list[Piece]:
    """The pieces in order of time; empty for a launch that executed nothing."""
    ends = [max(range(len(c.done)), key=c.done.__getitem__, default=-1) for c in timeline.distinct]
    last = [
        (timeline.distinct[n].done[ends[n]], -number, ends[n])
        for number, n in enumerate(timeline.which)
        if ends[n] >= 0
    ]
    if not last:
        return []
    now, negative, at = max(last)
    walk = _Walk(timeline, now)
    step: tuple[int, int] | None = (-negative, at)
    since: set[tuple[int, int]] = set()  # visited while no time was accounted for
    while step is not None:
        before, core = walk.now, step[0]
        step = walk.back(*step)
        if walk.now < before:
            since.clear()
        elif step in since:
            step = walk.last_over(core)
        elif step is not None:
            since.add(step)
    walk.pieces.reverse()
    return walk.pieces


class _Walk:
    """The way back; `now` is the time up to which everything later is accounted for."""

    def __init__(self, timeline: Timeline, now: float) -> None:
        self.timeline = timeline
        self.now = now
        self.pieces: list[Piece] = []

    def _spend(self, core: int, at: int, until: float, kind: str) -> None:
        """Account for the time back to `until`."""
        if until < self.now:
            self.pieces.append(Piece(core, at, until, self.now, kind))
            self.now = until

    def back(self, core: int, at: int) -> tuple[int, int] | None:
        """Account for an instruction and the wait before it; returns what it waited for."""
        c = self.timeline.core(core)
        i = c.graph.executed[at]
        if c.held and at in c.held and self.now >= c.end[at]:
            # Another core came later: from its message on, everything was waiting for that.
            held = c.held[at]
            kind = i.engine if i.engine == "cc" else MESSAGES
            self._spend(core, at, self.timeline.core(held[0]).start[held[1]], kind)
            return self._before(*held)
        start, end = c.start[at], c.end[at]
        if end < self.now:
            self._spend(core, at, end, PIPELINE)
        if start < self.now:
            self._spend(core, at, start, "dma data" if i.ordinal in c.transfers else i.engine)
        return self._before(core, at)

    def last_over(self, core: int) -> tuple[int, int] | None:
        """What a core had finished last, if causes lead nowhere.

        They do where a queue was busy with a transfer that moved its data later than those behind
        it: its cause is what it waited for then.
        """
        ends = self.timeline.core(core).end
        over = [at for at, end in enumerate(ends) if end < self.now]
        if over:
            return core, max(over, key=ends.__getitem__)
        self._spend(core, 0, 0.0, SEMAPHORE)
        return None

    def _before(self, core: int, at: int) -> tuple[int, int] | None:
        """Account for what lies between an instruction's cause and its start."""
        c = self.timeline.core(core)
        if at in c.table_loads:
            self._spend(core, at, c.table_loads[at].start, TABLE)
        cause, reason = c.cause[at], c.reason[at]
        since = 0.0
        if cause is not None:
            number, position = cause
            other = c if number == core else self.timeline.core(number)
            if reason == DATA:
                since = other.done[position]
            else:
                since = (other.start if reason == ISSUE else other.end)[position]
        if since >= self.now:
            return cause
        transfer = c.transfers.get(c.graph.executed[at].ordinal)
        if transfer is not None:
            triggered = c.ready[at]
            self._spend(core, at, max(since, triggered + transfer.lead_ns), DMA_BUSY)
            self._spend(core, at, max(since, triggered), DMA_LATENCY)
        self._spend(core, at, since, _WAITED_FOR.get(reason, SEMAPHORE))
        return cause
