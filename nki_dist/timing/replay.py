"""Replaying the programs of a launch in simulated time.

Every engine and DMA queue of every core takes its instructions in program order. One starts when
its queue is free and what it follows in the order graph is over, plus the latency of a semaphore if
that ran on another queue. Most of this is arithmetic on a directed graph, worked off as inputs
become known; only instructions that share something with others (the DMA engines, an HBM stack, a
memory port) go through a heap and are served in order of simulated time.

Invariant: when the heap is popped nothing known can ask for a shared resource earlier, because
everything that follows from the past has been worked off. No host clock takes part and ties are
broken by a counter, so the same launch gives the same bits. Doesn't model instruction fetch, loop
and branch instructions, semaphore counts. Follows: A2 "Engine synchronisation", DMAO, DMAB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import Exchange
from nki_dist.isa.spec import Spec
from nki_dist.program import Program
from nki_dist.program.collector import collector_paused
from nki_dist.timing.core import CoreReplay, Fixed, describe
from nki_dist.timing.dma import HbmBandwidth
from nki_dist.timing.exchange import EXCHANGES, Rule
from nki_dist.timing.meeting import Meetings
from nki_dist.timing.order import OrderGraph, order
from nki_dist.timing.timeline import (
    DATA,
    ISSUE,
    QUEUE,
    RESOURCE,
    REUSE,
    Delivery,
    Seat,
    Timeline,
)


def replay(
    programs: Sequence[Program],
    trips_per_core: Sequence[Sequence[int]],
    arch: Arch,
    placement: Sequence[Seat] | None = None,
    table: Mapping[str, Spec] = INSTRUCTIONS,
    exchanges: Mapping[str, Rule] = EXCHANGES,
    all_addresses: bool = False,
) -> Timeline:
    """Simulated times of everything a launch executed.

    Args:
        programs: one per physical core of the launch.
        trips_per_core: for each, the trip counts its executor recorded.
        placement: for each, where it sits; by default ranks follow each other, and neighbours share
            an HBM stack.
        table: the instruction set.
        exchanges: a rule for each instruction that waits for other cores.
        all_addresses: tensors also wait for those whose bytes the allocator gave them. Off, because
            it packs tightly, without an eye on what could overlap in time.

    Raises:
        LaunchError: the trip counts don't belong to the programs, or cores wait for messages that
            are never sent.
    """
    if len(programs) != len(trips_per_core):
        raise LaunchError(
            f"{len(programs)} programs, but trip counts of {len(trips_per_core)}",
            code="profile-trips",
            numbers={"got": len(trips_per_core), "allowed": len(programs)},
        )
    seats = list(placement) if placement is not None else default_placement(programs, arch)
    with collector_paused():
        return _replayed(programs, trips_per_core, arch, seats, table, exchanges, all_addresses)


def _replayed(
    programs: Sequence[Program],
    trips_per_core: Sequence[Sequence[int]],
    arch: Arch,
    seats: list[Seat],
    table: Mapping[str, Spec],
    exchanges: Mapping[str, Rule],
    all_addresses: bool,
) -> Timeline:
    cores = []
    graphs: dict[tuple[int, tuple[int, ...]], OrderGraph] = {}  # ranks often execute the same
    fixed: dict[int, dict[int, Fixed]] = {}
    for number, (program, trips) in enumerate(zip(programs, trips_per_core, strict=True)):
        key = (id(program), tuple(trips))
        if key not in graphs:
            graphs[key] = order(program, trips, table, all_addresses)
        if id(program) not in fixed:
            fixed[id(program)] = describe(graphs[key], table, arch)
        cores.append(CoreReplay(number, seats[number], graphs[key], arch, fixed[id(program)]))
    return _Replay(cores, seats, arch, exchanges).run()


def default_placement(programs: Sequence[Program], arch: Arch) -> list[Seat]:
    """Rank after rank, core after core; neighbours share an HBM stack."""
    return [Seat(n // p.cores, p.core, n // arch.cores_per_stack) for n, p in enumerate(programs)]


_Handler: TypeAlias = Callable[[CoreReplay, int, float], None]


class _Replay:
    def __init__(
        self,
        cores: list[CoreReplay],
        seats: list[Seat],
        arch: Arch,
        exchanges: Mapping[str, Rule],
    ) -> None:
        self.cores = cores
        self.seats = seats
        self.arch = arch
        self.exchanges = exchanges
        self.stacks = {p.stack: HbmBandwidth(arch) for p in seats}
        self.timeline = Timeline(arch, [c.timeline for c in cores])
        self.work: deque[tuple[CoreReplay, int]] = deque()
        self.heap: list[tuple[float, int, _Handler, CoreReplay, int]] = []
        self.pushed = 0
        self.sent: dict[tuple[int, int, str], list[tuple[float, float, int]]] = {}
        self.taken: dict[tuple[int, int, str], int] = {}
        self.waiting: dict[tuple[int, int], list[tuple[int, str, int]]] = {}
        self.awaited: dict[tuple[int, int, str, int], tuple[int, int]] = {}
        self.meetings = Meetings()
        self.dma_to_use = arch.dma_semaphore_ns * (1 - arch.dma_lead_fraction)

    def run(self) -> Timeline:
        for core in self.cores:
            self.work.extend((core, at) for at in core.first())
        while self.work or self.heap:
            while self.work:
                self._begin(*self.work.popleft())
            if self.heap:
                time, _, handler, core, at = heappop(self.heap)
                handler(core, at, time)
        self._check_all_done()
        for core in self.cores:
            core.finish()
        return self.timeline

    def _check_all_done(self) -> None:
        lines = self.meetings.describe(self.cores)
        if not self.waiting and not lines:
            return
        for (number, at), awaited in sorted(self.waiting.items()):
            i = self.cores[number].graph.executed[at]
            lines += [f"core {number} in {i!r} for core {s} ({ch})" for s, ch, _ in awaited]
        raise LaunchError(
            "replay: messages that are never sent: " + "; ".join(lines), code="profile-messages"
        )

    # ---- an instruction whose inputs are known ------------------------------------------------

    def _begin(self, core: CoreReplay, at: int) -> None:
        fixed = core.fixed(at)
        if fixed.synchronises:
            self._exchange(core, at)
        elif fixed.transfer is not None:
            trigger = core.ready[at]
            if core.line_up(at, trigger + fixed.transfer.lead_ns):
                self._push(core.turn(at), self._queue_turn, core, at)
            self._release_queue(core, at, trigger + fixed.transfer.issue_ns)
            self._release_issued(core, at, trigger)
        elif fixed.locks:
            self._push(core.ready[at], self._port, core, at)
        else:
            self._compute(core, at, core.ready[at])

    def _push(self, time: float, handler: _Handler, core: CoreReplay, at: int) -> None:
        heappush(self.heap, (time, self.pushed, handler, core, at))
        self.pushed += 1

    def _compute(self, core: CoreReplay, at: int, start: float) -> None:
        core.compute(at, start)
        timeline = core.timeline
        self._release_issued(core, at, timeline.start[at])
        self._release_queue(core, at, timeline.end[at])
        self._release(core, at)

    # ---- served in order of simulated time ------------------------------------------------------

    def _port(self, core: CoreReplay, at: int, time: float) -> None:
        """An instruction asks for memory ports."""
        locks = core.fixed(at).locks
        free = core.locks_free(locks)
        if free > time:
            core.timeline.reason[at] = RESOURCE
            core.timeline.cause[at] = core.lock_holder(locks)
            self._push(free, self._port, core, at)
            return
        self._compute(core, at, time)
        core.lock(locks, at)

    def _queue_turn(self, core: CoreReplay, at: int, time: float) -> None:
        """A transfer at the head of its queue asks for the DMA engines."""
        begin = core.ask(at, time)
        if begin is not None:
            self._push(begin, self._transfer, core, at)

    def _transfer(self, core: CoreReplay, at: int, time: float) -> None:
        """A transfer has its first DMA engine."""
        free = core.engines.head(core.transfer(at))
        assert free is not None
        if free[1] > time:  # a transfer of another line was faster
            self._push(free[1], self._transfer, core, at)
            return
        behind, next_in_line = core.move(at, time, self.stacks[core.seat.stack])
        self._release(core, at)
        if behind >= 0:
            self._push(core.turn(behind), self._queue_turn, core, behind)
        if next_in_line is not None:
            self._push(next_in_line[1], self._transfer, core, next_in_line[0])

    # ---- what follows ---------------------------------------------------------------------------

    def _release_issued(self, core: CoreReplay, at: int, start: float) -> None:
        for later in core.issued_after.get(at, ()):
            self._arrive(core, later, start, ISSUE, at)

    def _release_queue(self, core: CoreReplay, at: int, free: float) -> None:
        later = core.next_in_queue[at]
        if later >= 0:
            self._arrive(core, later, free, QUEUE, at)

    def _release(self, core: CoreReplay, at: int) -> None:
        """The instruction is over: whoever follows it in the order graph learns when."""
        timeline = core.timeline
        done, end = timeline.done[at], timeline.end[at]
        dma = core.fixed(at).transfer is not None
        hop = self.dma_to_use if dma else self.arch.semaphore_ns
        own = timeline.queue[at]
        for later in core.data_after[at]:
            same = timeline.queue[later] == own and not dma
            if not same:
                self._arrive(core, later, done + hop, DATA, at)
            else:
                self._arrive(core, later, end if core.chained(at) else done, DATA, at)
        for later in core.reuse_after[at]:
            same = timeline.queue[later] == own and not dma
            self._arrive(core, later, end if same else end + hop, REUSE, at)

    def _arrive(self, core: CoreReplay, at: int, time: float, reason: str, cause: int) -> None:
        """One of the things instruction `at` waits for is known."""
        if time > core.ready[at]:
            core.ready[at] = time
            core.timeline.reason[at] = reason
            core.timeline.cause[at] = (core.number, cause)
        core.waits[at] -= 1
        if not core.waits[at]:
            self.work.append((core, at))

    # ---- messages -------------------------------------------------------------------------------

    def _exchange(self, core: CoreReplay, at: int) -> None:
        i = core.graph.executed[at]
        rule = self.exchanges.get(i.opcode)
        if rule is None:
            raise LaunchError(
                f"no timing rule for nisa.{i.opcode}; rules exist for {', '.join(self.exchanges)}",
                location=core.graph.program.where(i.location),
                code="profile-rule",
            )
        what = rule(i, core.number, self.seats, self.arch)
        start = core.ready[at]
        timeline = core.timeline
        timeline.start[at] = start
        timeline.end[at] = timeline.done[at] = start + what.busy_ns
        self._release_issued(core, at, start)
        if what.meets:
            self._meet(core, at, what)
            return
        awaited = []
        for source in what.receives:
            key = (source, core.number, what.channel)
            sequence = self.taken.get(key, 0)
            self.taken[key] = sequence + 1
            awaited.append((source, what.channel, sequence))
        self.waiting[core.number, at] = awaited
        for target in what.sends:
            self._send(core.number, target, what.channel, start, start + what.latency_ns, at)
        self._collect(core, at)

    def _meet(self, core: CoreReplay, at: int, what: Exchange) -> None:
        """Finish a meeting once the last core has come."""
        start = core.timeline.start[at]
        come = self.meetings.come(what.channel, what.meets, core.number, at, start, what.latency_ns)
        if come is None:
            return
        for number, theirs in come.who:
            timeline = self.cores[number].timeline
            if (number, theirs) != come.last:
                timeline.busy_end[theirs] = timeline.end[theirs]
                timeline.held[theirs] = come.last
                self.timeline.deliveries.append(
                    Delivery(come.last, (number, theirs), what.channel, come.started, come.over)
                )
            timeline.end[theirs] = timeline.done[theirs] = come.over
            self._release_queue(self.cores[number], theirs, come.over)
            self._release(self.cores[number], theirs)

    def _send(
        self, source: int, target: int, channel: str, sent: float, arrived: float, at: int
    ) -> None:
        queue = self.sent.setdefault((source, target, channel), [])
        queue.append((sent, arrived, at))
        receiver = self.awaited.pop((source, target, channel, len(queue) - 1), None)
        if receiver is not None:
            self._collect(self.cores[receiver[0]], receiver[1])

    def _collect(self, core: CoreReplay, at: int) -> None:
        """Finish an exchange once everything it awaits has been sent."""
        awaited = self.waiting[core.number, at]
        for source, channel, sequence in awaited:
            if len(self.sent.get((source, core.number, channel), ())) <= sequence:
                self.awaited[source, core.number, channel, sequence] = (core.number, at)
                return
        del self.waiting[core.number, at]
        timeline = core.timeline
        for source, channel, sequence in awaited:
            sent, arrived, theirs = self.sent[source, core.number, channel][sequence]
            self.timeline.deliveries.append(
                Delivery((source, theirs), (core.number, at), channel, sent, arrived)
            )
            if arrived > timeline.end[at]:
                timeline.busy_end.setdefault(at, timeline.end[at])
                timeline.end[at] = timeline.done[at] = arrived
                timeline.held[at] = (source, theirs)
        self._release_queue(core, at, timeline.end[at])
        self._release(core, at)
