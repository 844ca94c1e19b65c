"""One core while its instructions get simulated times: queues, engines, what each waits for.

A queue takes its instructions in the order the kernel wrote them, or, as scheduled by a compiler,
the first of those that are ready, no further ahead of the first it hasn't issued than the core's
`Plan` says; static DMA takes its turns (`timing.turns`). Invariant: rounds of a dynamic loop never
overlap in one queue, because a loop's body is one stretch of instructions whose order was settled
before it ran. When things happen is decided in `replay`; what they cost and whom they keep waiting,
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop
from math import inf
from typing import Any

from nki_dist.arch import Arch
from nki_dist.timing.array import Array
from nki_dist.timing.capacity import Capacity
from nki_dist.timing.dma import DmaEngines, Transfer, spilling
from nki_dist.timing.engines import TensorClock
from nki_dist.timing.fixed import Fixed, Part
from nki_dist.timing.line import Line
from nki_dist.timing.stack import HbmBandwidth
from nki_dist.timing.timeline import RESOURCE, CoreTimeline, Seat, TableLoad
from nki_dist.timing.turns import turns


@dataclass(slots=True)
class Queue:
    """An engine's queue, or one of DMA.

    Attributes:
        order: turns of its instructions; those before `next` are issued.
        ahead: how many it may issue out of turn.
        ready: those that wait for nothing but the queue.
        free: when it can issue again; infinite while it waits for other cores.
        poked: an event will make it issue.
        last: the one it issued last, or -1.
        line: its transfers that could move their data, but for the one before or the DMA engines.
        moving: a transfer of it moves its data (in program order, one at a time does).
    """

    order: list[int] = field(default_factory=list)
    next: int = 0
    ahead: int = 0
    ready: list[int] = field(default_factory=list)  # heap of turns
    done: set[int] = field(default_factory=set)  # of `order` beyond `next`
    free: float = 0.0
    poked: bool = False
    last: int = -1
    line: list[int] = field(default_factory=list)  # heap of positions
    moving: bool = False


class CoreReplay:
    """One core during a replay.

    Attributes:
        ready: for each position, when all it waits for is over (so far).
        waits: how much of that isn't known yet.
        by_position: what is fixed of each instruction.
        transfers: for each position, its Transfer; None for what isn't DMA.
        line, scatter_line: transfers that could move their data, but for the DMA engines; of large
            packets, and of small ones.
        wake: when an event looks at `line` again.
        turn, by_turn: of a position, its turn to be taken if ready, and the other way round.
        freed: nobody looked at `scatter_line` since a transfer of small packets was over.
        data_after, reuse_after, issued_after: edges of the order graph, forward.
    """

    def __init__(self, number: int, seat: Seat, part: Part, arch: Arch) -> None:
        self.number, self.seat, self.arch = number, seat, arch
        self.graph, self.plan, self._fixed = graph, plan, fixed = part
        self.timeline = CoreTimeline(seat, graph)
        self.timeline.dropped, self.timeline.changes = plan.dropped, plan.notes
        self.ready = self.timeline.ready
        self.by_position = [fixed[i.ordinal] for i in graph.executed]
        self.transfers: list[Any] = [f.transfer for f in self.by_position]
        self._turn_edges()
        self.capacity = Capacity(graph, plan, arch)
        self._enqueue()
        for stay in self.capacity.stays:
            for at in stay.waiting:
                self.waits[at] += 1
        self._clock = TensorClock(arch)
        self._array = Array()
        transfers = {id(f.transfer): f.transfer for f in fixed.values() if f.transfer}
        self.engines = DmaEngines(arch, transfers.values())
        self._spills: dict[int, Transfer] = {}
        self.scatter_line = Line()
        self.line = Line()
        self.wake = inf
        self.freed = False
        self._locks: dict[str, tuple[float, int]] = {}  # by port, until when, and who has it
        self._table = ""

    # ---- before the replay ----------------------------------------------------------------------

    def _enqueue(self) -> None:
        """Give every instruction its queue; DMA with static descriptors goes round them."""
        names: dict[str, int] = {}
        turn = 0
        self.queues: list[Queue] = []
        several = self.plan.reorders
        rings = self.arch.dma_queues_per_engine
        for at, i in enumerate(self.graph.executed):
            if at in self.plan.dropped:
                continue
            move = self.transfers[at]
            name = i.engine
            if move is not None:
                name = move.queue
                if not name and several:
                    name = "dma"
                elif not name:
                    name = f"dma q{turn % rings}"
                    turn += 1
            elif i.engine == "dma":
                name = f"dma {i.opcode} {i.args.get('pipe_id', '')}".strip()
            number = names.setdefault(name, len(names))
            if number == len(self.queues):
                self.queues.append(Queue())
            self.timeline.queue[at] = number
            self.queues[number].order.append(at)
        self.timeline.queues = list(names)
        self.turn: Sequence[int] = range(len(self.graph))
        self.by_turn: Sequence[int] = self.turn
        for name, q in zip(names, self.queues, strict=True):
            close = self.plan.close and name != "tensor"
            q.ahead = several * (self.plan.look_ahead if close else len(self.graph))
            if name == "dma" and close:
                q.ahead = 0
                self.by_turn = turns(
                    self.graph, self.plan, self.capacity.stays, self.data_after, q.order
                )
                self.turn = sorted(self.turn, key=self.by_turn.__getitem__)
        for q in self.queues:
            q.order = sorted(self.turn[at] for at in q.order)

    def _turn_edges(self) -> None:
        graph = self.graph
        n = len(graph)
        self.waits = [0] * n
        self.data_after: list[list[int]] = [[] for _ in range(n)]
        self.reuse_after: list[list[int]] = [[] for _ in range(n)]
        self.issued_after: dict[int, list[int]] = {}
        for at in range(n):
            for p in graph.data[at]:
                self.data_after[p].append(at)
            for p in graph.reuse[at]:
                self.reuse_after[p].append(at)
            for p in graph.issue[at]:
                self.issued_after.setdefault(p, []).append(at)
            self.waits[at] = len(graph.data[at]) + len(graph.reuse[at]) + len(graph.issue[at])
        for at, first in self.plan.after.items():
            self.data_after[first].append(at)
            self.waits[at] += 1

    # ---- compute engines ------------------------------------------------------------------------

    def next_of(self, q: Queue) -> int:
        """Take the instruction a queue issues now, or -1."""
        if not q.ready:
            return -1
        order, done = q.order, q.done
        while done and order[q.next] in done:
            done.remove(order[q.next])
            q.next += 1
        turn, first = q.ready[0], order[q.next]
        at = self.by_turn[turn]
        if turn == first:
            q.next += 1
            heappop(q.ready)
            return at
        rounds = self.graph.rounds
        if not q.ahead or rounds[at] != rounds[self.by_turn[first]]:
            return -1
        if turn > order[min(q.next + q.ahead, len(order) - 1)]:
            return -1
        heappop(q.ready)
        done.add(turn)
        return at

    def compute(self, at: int, start: float) -> None:
        """Run an instruction on its engine from `start`, or when the ports it needs are free."""
        fixed, timeline = self.by_position[at], self.timeline
        if fixed.locks:
            free, holder = max(self._locks.get(name, (0.0, -1)) for name in fixed.locks)
            if free > start:
                start = free
                timeline.reason[at], timeline.cause[at] = RESOURCE, (self.number, holder)
        function, table = fixed.function
        if table and table != self._table:
            self._table = table
            loaded = start + self.arch.act_table_load_ns
            timeline.table_loads[at] = TableLoad(start, loaded, function)
            start = loaded
        end = over = start + fixed.occupancy
        if self.graph.executed[at].engine == "tensor":
            start, end, over = self._multiply(fixed, start)
        timeline.start[at], timeline.end[at], timeline.done[at] = start, end, over + fixed.drain
        for name in fixed.locks:
            self._locks[name] = end, at

    def _multiply(self, fixed: Fixed, start: float) -> tuple[float, float, float]:
        """When Tensor begins an instruction, when it can begin the next, and when this is over."""
        tile = fixed.cost.tile
        start = max(start, self._array.free(tile))
        over = self._clock.run(start, fixed.occupancy, fixed.activity)
        self._array.take(tile, over)
        share = self._array.share(tile, self.arch)
        return start, start + (over - start) * share, over

    # ---- DMA ------------------------------------------------------------------------------------

    def move(self, at: int, time: float, stack: HbmBandwidth) -> None:
        """Run the data phase of a transfer."""
        timeline = self.timeline
        t = self.transfers[at]
        end, blocker = self.engines.run(at, t, self.ready[at] + t.lead_ns, time, stack)
        if blocker >= 0:
            timeline.reason[at], timeline.cause[at] = RESOURCE, (self.number, blocker)
        timeline.start[at], timeline.end[at], timeline.done[at] = time, end, end
        timeline.hbm_read += t.hbm_read
        timeline.hbm_written += t.hbm_written

    def spill(self, size: int, time: float, stack: HbmBandwidth, back: bool = False) -> float:
        """Move spilled bytes; returns the end."""
        t = self._spills.get(size)
        if t is None:
            t = self._spills[size] = spilling(size, self.arch)
        if back:
            self.timeline.hbm_read += size
        else:
            self.timeline.hbm_written += size
        return self.engines.run(-1, t, time, time, stack)[0]

    def scatter(self, at: int, time: float) -> float:
        """Begin the data phase of a transfer of small packets; returns when to look after it."""
        t = self.transfers[at]
        self.timeline.start[at] = time
        self.timeline.hbm_read += t.hbm_read
        self.timeline.hbm_written += t.hbm_written
        return self.engines.scatter(t, time)

    def scattered(self, at: int, time: float) -> float:
        """Look after it: when to do so again, or `time` if it is over and its engines are free."""
        t = self.transfers[at]
        again = self.engines.scattered(t, time)
        if again <= time:
            self.timeline.end[at] = self.timeline.done[at] = time
        return again

    def left(self) -> list[int]:
        """Positions that aren't over: none at the end, unless they wait for messages."""
        found = {at for at, n in enumerate(self.waits) if n}
        waiting = self.line.everyone() + self.scatter_line.everyone()
        for q in self.queues:
            waiting += q.ready
            found.update(q.line)
        found.update(self.by_turn[turn] for turn in waiting)
        return sorted(found)

    def finish(self) -> CoreTimeline:
        """The timeline, once every instruction has run."""
        self.timeline.costs = {n: f.cost for n, f in self._fixed.items()}
        self.timeline.patterns = self.by_position
        self.timeline.dma_busy = list(self.engines.busy)
        self.timeline.transfers = {
            n: f.transfer for n, f in self._fixed.items() if f.transfer is not None
        }
        return self.timeline
