"""The state of one core in a replay: its queues, its engines, what each instruction waits for.

Invariant: transfers of one DMA queue move their data one after the other, in program order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nki_dist.arch import Arch
from nki_dist.isa.spec import Cost, Spec
from nki_dist.program import instructions
from nki_dist.timing.array import Array
from nki_dist.timing.dma import DmaEngines, HbmBandwidth, Transfer, transfer
from nki_dist.timing.engines import TensorClock, drain_ns, locks_of, occupancy_ns, table_of
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.timeline import QUEUE, RESOURCE, CoreTimeline, Seat, TableLoad


@dataclass(frozen=True)
class Fixed:
    """What every execution of one instruction has in common."""

    cost: Cost
    occupancy: float
    drain: float
    transfer: Transfer | None
    locks: tuple[str, ...]
    function: tuple[str, str]  # an activation function and its set of tables
    chains: bool
    synchronises: bool


def describe(graph: OrderGraph, table: Mapping[str, Spec], arch: Arch) -> dict[int, Fixed]:
    """By ordinal, for every instruction of a program; cores that run it share the result."""
    found = {}
    for i in instructions(graph.program.body):
        spec = table[i.opcode]
        cost = spec.price(i, arch)
        reads, writes = graph.tensors[i.ordinal]
        both = (*reads, *writes)
        dma = i.engine == "dma" and not spec.synchronises
        found[i.ordinal] = Fixed(
            cost,
            occupancy_ns(i, cost, both, arch),
            drain_ns(i.engine, arch),
            transfer(i, cost, reads, writes, arch) if dma else None,
            locks_of(i, both, arch),
            table_of(i, spec),
            bool(spec.chains) and i.engine == "tensor",
            spec.synchronises,
        )
    return found


class CoreReplay:
    """One core during a replay.

    Attributes:
        ready: for each position, when all it waits for is over (so far).
        waits: how much of that isn't known yet.
        next_in_queue: the position after it in its queue, or -1.
        data_after, reuse_after, issued_after: edges of the order graph, forward.
    """

    def __init__(
        self,
        number: int,
        seat: Seat,
        graph: OrderGraph,
        arch: Arch,
        fixed: Mapping[int, Fixed],
    ) -> None:
        self.number = number
        self.seat = seat
        self.graph = graph
        self.arch = arch
        self.timeline = CoreTimeline(seat, graph)
        self.ready = self.timeline.ready
        self._fixed = fixed
        self._by_position = [fixed[i.ordinal] for i in graph.executed]
        self._enqueue()
        self._turn_edges()
        self._clock = TensorClock(arch)
        self._array = Array()
        self.engines = DmaEngines(arch)
        self._locks: dict[str, tuple[float, int]] = {}
        self._table = ""
        self._moved: dict[int, tuple[float, int]] = {}  # queue -> end of its last transfer, and who
        self._lines: dict[int, deque[tuple[float, int]]] = {}  # queue -> transfers behind the first

    # ---- before the replay ----------------------------------------------------------------------

    def _enqueue(self) -> None:
        """Give every instruction its queue; DMA with static descriptors goes round them."""
        names: dict[str, int] = {}
        turn = 0
        last: dict[int, int] = {}
        self.next_in_queue = [-1] * len(self.graph)
        for at, i in enumerate(self.graph.executed):
            move = self._by_position[at].transfer
            name = i.engine
            if move is not None:
                name = move.queue
                if not name:
                    name = f"dma q{turn % self.arch.dma_queues_per_engine}"
                    turn += 1
            elif i.engine == "dma":
                name = f"dma {i.opcode} {i.args.get('pipe_id', '')}".strip()
            queue = self.timeline.queue[at] = names.setdefault(name, len(names))
            if queue in last:
                self.next_in_queue[last[queue]] = at
            last[queue] = at
        self.timeline.queues = list(names)

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
        for later in self.next_in_queue:
            if later >= 0:
                self.waits[later] += 1

    def first(self) -> Iterator[int]:
        """Positions that wait for nothing."""
        return (at for at, n in enumerate(self.waits) if not n)

    def fixed(self, at: int) -> Fixed:
        return self._by_position[at]

    def chained(self, at: int) -> bool:
        """Whether dependants on the same engine needn't wait for the result."""
        return self._by_position[at].chains

    # ---- compute engines ------------------------------------------------------------------------

    def compute(self, at: int, start: float) -> None:
        """Run an instruction on its engine from `start`."""
        fixed, timeline = self._by_position[at], self.timeline
        function, table = fixed.function
        if table and table != self._table:
            self._table = table
            loaded = start + self.arch.act_table_load_ns
            timeline.table_loads[at] = TableLoad(at, start, loaded, function)
            start = loaded
        end = over = start + fixed.occupancy
        if self.graph.executed[at].engine == "tensor":
            start, end, over = self._multiply(fixed, start)
        timeline.start[at], timeline.end[at], timeline.done[at] = start, end, over + fixed.drain

    def _multiply(self, fixed: Fixed, start: float) -> tuple[float, float, float]:
        """When Tensor begins an instruction, when it can begin the next, and when this is over."""
        tile = fixed.cost.tile
        start = max(start, self._array.free(tile))
        over = self._clock.run(start, fixed.occupancy)
        self._array.take(tile, over)
        share = self._array.share(tile, self.arch)
        return start, start + (over - start) * share, over

    def locks_free(self, locks: tuple[str, ...]) -> float:
        return max(self._locks.get(name, (0.0, -1))[0] for name in locks)

    def lock_holder(self, locks: tuple[str, ...]) -> tuple[int, int]:
        """The instruction that frees the locks last."""
        return (self.number, max(self._locks.get(name, (0.0, -1)) for name in locks)[1])

    def lock(self, locks: tuple[str, ...], at: int) -> None:
        """Instruction `at` keeps the locks until it ends."""
        for name in locks:
            self._locks[name] = (self.timeline.end[at], at)

    # ---- DMA ------------------------------------------------------------------------------------

    def line_up(self, at: int, earliest: float) -> bool:
        """Join the line of a queue; True for the transfer at its head, whose turn it is."""
        line = self._lines.setdefault(self.timeline.queue[at], deque())
        line.append((earliest, at))
        return len(line) == 1

    def turn(self, at: int) -> float:
        """When the transfer at the head of its queue can ask for the DMA engines."""
        queue = self.timeline.queue[at]
        earliest = self._lines[queue][0][0]
        free, last = self._moved.get(queue, (0.0, -1))
        if free > earliest:
            self.timeline.reason[at] = QUEUE
            self.timeline.cause[at] = (self.number, last)
        return max(earliest, free)

    def ask(self, at: int, time: float) -> float | None:
        """Ask for the DMA engines; if nobody is in line before it, when they can be had."""
        t = self.transfer(at)
        head = self.engines.head(t) if self.engines.ask(at, t, time) else None
        return head[1] if head is not None else None

    def move(
        self, at: int, time: float, stack: HbmBandwidth
    ) -> tuple[int, tuple[int, float] | None]:
        """Run the data phase of a transfer.

        Returns:
            the next transfer in its queue's line or -1, and the next in line for the engines with
            the time it can begin.
        """
        timeline, t = self.timeline, self.transfer(at)
        end, blocker = self.engines.run(t, time, stack)
        if blocker >= 0:
            timeline.reason[at], timeline.cause[at] = RESOURCE, (self.number, blocker)
        timeline.start[at], timeline.end[at], timeline.done[at] = time, end, end
        timeline.hbm_read += t.hbm_read
        timeline.hbm_written += t.hbm_written
        queue = timeline.queue[at]
        self._moved[queue] = (end, at)
        line = self._lines[queue]
        line.popleft()
        return (line[0][1] if line else -1), self.engines.head(t)

    def transfer(self, at: int) -> Transfer:
        t = self._by_position[at].transfer
        assert t is not None
        return t

    def finish(self) -> CoreTimeline:
        """The timeline, once every instruction has run."""
        self.timeline.costs = {n: f.cost for n, f in self._fixed.items()}
        self.timeline.dma_busy = list(self.engines.busy)
        self.timeline.transfers = {
            n: f.transfer for n, f in self._fixed.items() if f.transfer is not None
        }
        return self.timeline
