"""Gives each instruction of a launch its simulated start and end, event after event.

A launch is a heap of events: an instruction has all it waits for, an engine is free, a transfer
can move its data. An engine issues what is ready: in the order written (schedule "program"), or out
of turn as far as its core's `Plan` lets it ("compiled", which also leaves out, merges and spills
what AWS's compiler does). An instruction is ready once what it follows in the order graph is over,
plus the latency of a semaphore if that ran on another queue, and what it writes has room on chip.
Its end is known when it begins; only transfers of small packets are looked at again.

Invariant: an event never leads to an earlier one, so whatever is shared (DMA engines, an HBM stack,
memory ports, room) is asked for in order of simulated time. Events of one time go by kind, then by
position and core, so the same launch gives the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.timing.core import CoreReplay
from nki_dist.timing.exchange import Rule, Seats
from nki_dist.timing.fixed import Part
from nki_dist.timing.messages import Messages
from nki_dist.timing.stack import HbmBandwidth
from nki_dist.timing.timeline import (
    DATA,
    ISSUE,
    MEMORY,
    QUEUE,
    REUSE,
    Timeline,
)

# Kinds of events; of those at the same time the first kind goes first.
_READY, _POKE, _ARRIVE, _TURN, _LOOK_AFTER, _IDLE, _OVER, _RELOAD = range(8)

When: TypeAlias = tuple[float, str]  # and why
Place: TypeAlias = tuple[int, int]  # core and position


class Events:
    """The cores of a launch while they are replayed."""

    def __init__(
        self,
        parts: Sequence[Part],
        seats: Seats,
        arch: Arch,
        exchanges: Mapping[str, Rule],
    ) -> None:
        both = enumerate(zip(parts, seats, strict=True))
        self.cores = cores = [CoreReplay(n, seat, part, arch) for n, (part, seat) in both]
        self.arch = arch
        self.stacks = {p.stack: HbmBandwidth(arch) for p in seats}
        self.timeline = Timeline(arch, [c.timeline for c in cores])
        self.heap: list[tuple[float, int, int, int]] = []  # time, kind, position or number, core
        self.returning: dict[tuple[int, int], int | None] = {}  # reloads: who made room
        self.messages = Messages(cores, seats, arch, exchanges)
        self.dma_to_use = arch.dma_semaphore_ns * (1 - arch.dma_lead_fraction)
        self.now = 0.0

    def run(self) -> Timeline:
        for core in self.cores:
            first = [at for at, n in enumerate(core.waits) if not n]
            self._give_capacity(core, 0.0, None)
            for at in first:
                self._schedule(core, at)
        handlers = (
            self._on_ready,
            self._on_poke,
            self._on_arrive,
            self._on_turn,
            self._on_look_after,
            self._on_idle,
            self._on_over,
            self._on_reload,
        )
        heap, cores = self.heap, self.cores
        while True:
            while heap:
                time, kind, number, c = heappop(heap)
                self.now = time
                handlers[kind](cores[c], number, time)
            if not self._spill():
                break
        self._check_all_done()
        for core in self.cores:
            core.finish()
        self.timeline.deliveries = self.messages.deliveries
        return self.timeline

    def _spill(self) -> bool:
        """Nothing can go on: every core that waits for room gets some that isn't there."""
        stays = [(core, core.capacity.force()) for core in self.cores]
        waiting = [(core, stay) for core, stay in stays if stay >= 0]
        for core, stay in waiting:
            self._furnish(core, stay, self.now, None)
        return bool(waiting)

    # ---- events -------------------------------------------------------------------------------

    def _schedule(self, core: CoreReplay, at: int) -> None:
        """All that an instruction waits for has a time."""
        if at in core.plan.dropped:
            self._pass(core, at)
        else:
            heappush(self.heap, (core.ready[at], _READY, at, core.number))

    def _pass(self, core: CoreReplay, at: int) -> None:
        """An instruction that the compiler left out: what follows it only waits for its inputs."""
        timeline = core.timeline
        time = core.ready[at]
        timeline.start[at] = timeline.end[at] = timeline.done[at] = time
        for later in core.issued_after.get(at, ()):
            self._arrive(core, later, time, ISSUE, at)
        cause = timeline.cause[at]
        by = at if cause is None or cause[0] != core.number else cause[1]
        for later in (*core.data_after[at], *core.reuse_after[at]):
            self._arrive(core, later, time, timeline.reason[at], by)

    def _on_ready(self, core: CoreReplay, at: int, time: float) -> None:
        number = core.timeline.queue[at]
        q = core.queues[number]
        heappush(q.ready, core.turn[at])
        if q.poked or q.free == inf:
            return
        if q.free > time or (self.heap and self.heap[0][0] <= time):
            q.poked = True
            heappush(self.heap, (max(q.free, time), _POKE, number, core.number))
        else:  # that would be the next event
            self._on_poke(core, number, time)

    def _busy(self, core: CoreReplay, number: int, until: float) -> None:
        """A queue issues nothing until then; if something is ready, it issues that."""
        q = core.queues[number]
        q.free = until
        if q.ready:
            q.poked = True
            heappush(self.heap, (until, _POKE, number, core.number))

    def _on_poke(self, core: CoreReplay, number: int, time: float) -> None:
        """A queue that is free issues what it can."""
        q = core.queues[number]
        q.poked = False
        at = core.next_of(q)
        if at < 0:
            return
        timeline = core.timeline
        if core.ready[at] < time and q.last >= 0:
            timeline.reason[at], timeline.cause[at] = QUEUE, (core.number, q.last)
        fixed = core.by_position[at]
        q.last = at
        if fixed.transfer is not None:
            core.ready[at] = time
            self._issue(core, at, time)
            self._busy(core, number, time + fixed.transfer.issue_ns)
            heappush(self.heap, (time + fixed.transfer.lead_ns, _ARRIVE, at, core.number))
        elif fixed.synchronises:
            q.free = inf  # until it is over
            self._issue(core, at, time)
            for other, theirs in self.messages.exchange(core, at, time):
                self._busy(other, other.timeline.queue[theirs], other.timeline.end[theirs])
                self._release(other, theirs)
        else:
            core.compute(at, time)
            self._issue(core, at, timeline.start[at])
            self._busy(core, number, timeline.end[at])
            self._release(core, at)

    def _on_arrive(self, core: CoreReplay, at: int, time: float) -> None:
        """A transfer could move its data now."""
        if not core.plan.reorders:
            q = core.queues[core.timeline.queue[at]]
            if q.moving:
                heappush(q.line, at)
                return
            q.moving = True
        t = core.transfers[at]
        if t.packets:
            line = core.scatter_line
            if core.freed:  # others may begin, too
                line.join(core.turn[at])
                self._scatter(core, time)
            elif line.reaches(core.turn[at]) and core.engines.scatters(t):
                self._begin(core, at, time)
            else:
                line.join(core.turn[at])
            return
        if core.wake <= time:  # others may go, too
            core.line.join(core.turn[at])
            self._move(core, time)
        elif core.line.reaches(core.turn[at]):
            when = core.engines.takes_at(t)
            if when <= time:
                self._go(core, at, time)
            else:
                core.line.join(core.turn[at])
                self._wake(core, when)
        else:
            core.line.join(core.turn[at])

    def _scatter(self, core: CoreReplay, time: float) -> None:
        """Transfers of small packets begin; engines move one at a time."""
        core.freed = False
        line, n = core.scatter_line, 0
        refused = None
        while n < len(line.head):
            at = core.by_turn[line.head[n]]
            t = core.transfers[at]
            if t is refused or not core.engines.scatters(t):  # engines only get busier here
                refused = t
                n += 1
                continue
            line.leave(n)
            self._begin(core, at, time)
            if core.engines.all_scatter():
                return

    def _begin(self, core: CoreReplay, at: int, time: float) -> None:
        heappush(self.heap, (core.scatter(at, time), _LOOK_AFTER, at, core.number))

    def _on_look_after(self, core: CoreReplay, at: int, time: float) -> None:
        """A transfer of small packets could be over."""
        again = core.scattered(at, time)
        if again > time:
            heappush(self.heap, (again, _LOOK_AFTER, at, core.number))
            return
        core.freed = True
        if not core.plan.reorders:
            self._on_turn(core, at, time)
        self._release(core, at)
        self._scatter(core, time)

    def _move(self, core: CoreReplay, time: float) -> None:
        """Transfers in line move their data as far as DMA engines are free."""
        line, n, soon = core.line, 0, inf
        refused = None
        while n < len(line.head):
            at = core.by_turn[line.head[n]]
            t = core.transfers[at]
            if t is refused:  # engines only get busier here
                n += 1
                continue
            when = core.engines.takes_at(t)
            if when <= time:
                line.leave(n)
                self._go(core, at, time)
            else:
                refused = t
                soon = min(soon, when)
                n += 1
        self._wake(core, soon)

    def _go(self, core: CoreReplay, at: int, time: float) -> None:
        """A transfer moves its data."""
        core.move(at, time, self.stacks[core.seat.stack])
        if not core.plan.reorders:
            heappush(self.heap, (core.timeline.end[at], _TURN, at, core.number))
        self._release(core, at)

    def _wake(self, core: CoreReplay, time: float) -> None:
        """The first transfer in line can move its data then, or somewhat later."""
        if time < core.wake:
            core.wake = time
            heappush(self.heap, (time, _IDLE, 0, core.number))

    def _on_idle(self, core: CoreReplay, number: int, time: float) -> None:
        """DMA engines are free that a transfer waits for."""
        if time >= core.wake:
            core.wake = inf
            self._move(core, time)

    def _on_turn(self, core: CoreReplay, at: int, time: float) -> None:
        """A transfer is over; the next of its queue can move its data."""
        q = core.queues[core.timeline.queue[at]]
        q.moving = False
        if q.line:
            later = heappop(q.line)
            core.timeline.reason[later], core.timeline.cause[later] = QUEUE, (core.number, at)
            self._on_arrive(core, later, time)

    def _on_over(self, core: CoreReplay, stay: int, time: float) -> None:
        """The last access to a piece is over: its room is free, once it is saved if need be."""
        of = core.capacity.stays[stay]
        if of.save:
            saved = core.spill(of.save, time, self.stacks[core.seat.stack]) + self.dma_to_use
            of.save = 0
            heappush(self.heap, (saved, _OVER, stay, core.number))
            return
        core.capacity.leave(stay)
        self._give_capacity(core, time, of.by)

    def _give_capacity(self, core: CoreReplay, time: float, cause: int | None) -> None:
        for stay in core.capacity.given():
            self._furnish(core, stay, time, cause)

    def _furnish(self, core: CoreReplay, stay: int, time: float, cause: int | None) -> None:
        """There is room; what was spilled comes back first."""
        if not core.capacity.stays[stay].reload:
            self._settle(core, stay, time, cause)
            return
        self.returning[core.number, stay] = cause
        begin = time + self.arch.dma_semaphore_ns * self.arch.dma_lead_fraction
        heappush(self.heap, (begin, _RELOAD, stay, core.number))

    def _on_reload(self, core: CoreReplay, stay: int, time: float) -> None:
        size, stack = core.capacity.stays[stay].reload, self.stacks[core.seat.stack]
        end = core.spill(size, time, stack, back=True)
        self._settle(core, stay, end + self.dma_to_use, self.returning.pop((core.number, stay)))

    def _settle(self, core: CoreReplay, stay: int, time: float, cause: int | None) -> None:
        """A tensor is where it belongs on chip."""
        for at in core.capacity.stays[stay].waiting:
            self._arrive(core, at, time, MEMORY, cause)

    def _check_all_done(self) -> None:
        lines = self.messages.describe()
        if lines:
            what = f"replay: messages that are never sent: {'; '.join(lines)}"
            raise LaunchError(what, code="profile-messages")
        for core in self.cores:
            left = [repr(core.graph.executed[at]) for at in core.left()]
            assert not left, f"replay: core {core.number} never came to {', '.join(left[:4])}"

    # ---- what follows ---------------------------------------------------------------------------

    def _issue(self, core: CoreReplay, at: int, start: float) -> None:
        for later in core.issued_after.get(at, ()):
            self._arrive(core, later, start, ISSUE, at)

    def _release(self, core: CoreReplay, at: int) -> None:
        """The instruction has its end: whoever follows it in the order graph learns when."""
        timeline, fixed = core.timeline, core.by_position[at]
        done, end = timeline.done[at], timeline.end[at]
        if fixed.transfer is not None:
            hop, queued = self.dma_to_use, -1  # its result is never there for its own queue
        else:
            hop, queued = self.arch.semaphore_ns, timeline.queue[at]
        by = (core.number, at)
        after = core.data_after[at]
        if after:
            near = end if fixed.chains else done
            self._tell(core, after, queued, (near, DATA), (done + hop, DATA), by)
        after = core.reuse_after[at]
        if after:  # its own queue would wait for it anyway
            self._tell(core, after, queued, (end, QUEUE), (end + hop, REUSE), by)
        if core.capacity.stays:
            for number in core.capacity.over(at, end, done):
                stay = core.capacity.stays[number]
                told = core.plan.close and not stay.save
                when = stay.until + told * self.arch.semaphore_ns
                heappush(self.heap, (when, _OVER, number, core.number))

    def _tell(
        self, core: CoreReplay, after: Sequence[int], queued: int, near: When, far: When, by: Place
    ) -> None:
        """`_arrive` for all that follow `by`: when and why on its own queue, and on others."""
        timeline, ready, waits = core.timeline, core.ready, core.waits
        queue = timeline.queue
        for later in after:
            time, reason = near if queue[later] == queued else far
            if time > ready[later]:
                ready[later] = time
                timeline.reason[later] = reason
                timeline.cause[later] = by
            waits[later] -= 1
            if not waits[later]:
                self._schedule(core, later)

    def _arrive(
        self, core: CoreReplay, at: int, time: float, reason: str, cause: int | None
    ) -> None:
        """One of the things instruction `at` waits for is known."""
        if time > core.ready[at]:
            core.ready[at] = time
            core.timeline.reason[at] = reason
            core.timeline.cause[at] = None if cause is None else (core.number, cause)
        core.waits[at] -= 1
        if not core.waits[at]:
            self._schedule(core, at)
