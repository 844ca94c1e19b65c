"""When each instruction of a launch began and ended in simulated time, and what it waited for.

Times are nanoseconds since the launch began on the device. An instruction has three: `start`, `end`
(its engine or queue goes on), and `done` (its result can be used). Kept as columns, one entry per
position of the order graph, because launches have millions of instructions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nki_dist.arch import Arch
from nki_dist.isa.spec import Cost
from nki_dist.program import Program
from nki_dist.timing.dma import Transfer
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.schedules import PROGRAM

# What fixed the start of an instruction.
START: Final = "start"  # nothing: it could begin at once
QUEUE: Final = "queue"  # its engine or queue was busy
DATA: Final = "data"  # an operand wasn't ready
REUSE: Final = "reuse"  # memory it overwrites was still in use
ISSUE: Final = "issue"  # an instruction that has to be issued first
MEMORY: Final = "memory"  # room on chip that another tensor leaves, or the reload of a spill
RESOURCE: Final = "resource"  # a memory port or the DMA engines, shared with others


@dataclass(frozen=True)
class Seat:
    """Where a core of the launch sits.

    Attributes:
        rank: its logical core.
        core: its number within the logical core.
        stack: the HBM stack it works out of; cores of one stack share its bandwidth.
    """

    rank: int
    core: int
    stack: int


def default_placement(programs: Sequence[Program], arch: Arch) -> list[Seat]:
    """Rank after rank, core after core; neighbours share an HBM stack."""
    return [Seat(n // p.cores, p.core, n // arch.cores_per_stack) for n, p in enumerate(programs)]


@dataclass(frozen=True)
class TableLoad:
    """The Scalar engine loading tables, for the activation function that needs them first."""

    start: float
    end: float
    function: str


@dataclass(frozen=True)
class Delivery:
    """A message between two cores: (core, position) of both instructions, and its times."""

    source: tuple[int, int]
    target: tuple[int, int]
    channel: str
    sent: float
    arrived: float


class CoreTimeline:
    """One core.

    Attributes:
        graph: what it executed.
        queues: names of its engines and DMA queues.
        queue: for each position, an index into `queues`.
        ready: when all it waits for was over; a DMA is triggered then.
        start, end, done: see the module's docstring.
        reason: what fixed the start.
        cause: the (core, position) that fixed it, or None.
        dropped: positions that the compiler is taken to leave out: they are on no queue and take no
            time; their `start` is when what follows could begin.
        changes: what it is taken to change: (location, what) -> count and bytes.
        held: what fixed the end where the instruction itself didn't, by position.
        busy_end: when such an instruction's own work was over.
        costs: by ordinal.
        patterns: for each position, an object that instructions with all of that in common share.
        table_loads: by position of the instruction that needed it.
        transfers: demands of the DMA instructions, by ordinal.
        dma_busy: ns that each DMA engine was moving data.
        hbm_read, hbm_written: bytes moved from and to HBM.
    """

    def __init__(self, seat: Seat, graph: OrderGraph) -> None:
        n = len(graph)
        self.seat = seat
        self.graph = graph
        self.queues: list[str] = []
        self.queue = [0] * n
        self.ready = [0.0] * n
        self.start = [0.0] * n
        self.end = [0.0] * n
        self.done = [0.0] * n
        self.reason = [START] * n
        self.cause: list[tuple[int, int] | None] = [None] * n
        self.dropped: Collection[int] = ()
        self.changes: Mapping[tuple[int, str], Sequence[int]] = {}
        self.held: dict[int, tuple[int, int]] = {}
        self.busy_end: dict[int, float] = {}
        self.costs: dict[int, Cost] = {}
        self.patterns: Sequence[object] = ()
        self.table_loads: dict[int, TableLoad] = {}
        self.transfers: dict[int, Transfer] = {}
        self.dma_busy: list[float] = []
        self.hbm_read = 0
        self.hbm_written = 0


@dataclass
class Timeline:
    """A launch: its cores, the messages between them, and the schedule it was replayed by.

    Attributes:
        distinct: cores whose times differ; here all.
        which: for each core the number of its times in `distinct`.
        stacks: how many HBM stacks its cores work out of.
        launch: what was replayed (`timing.replay.Launch`), to do so again with changes.
    """

    arch: Arch
    distinct: list[CoreTimeline]
    which: Sequence[int]
    stacks: int
    deliveries: list[Delivery] = field(default_factory=list)
    schedule: str = PROGRAM
    launch: Any = field(default=None, repr=False, compare=False)

    @property
    def total_ns(self) -> float:
        """From the first instruction's readiness to the last result."""
        return max((max(c.done, default=0.0) for c in self.distinct), default=0.0)

    @property
    def cores(self) -> list[CoreTimeline]:
        """All cores."""
        return self.distinct

    def core(self, number: int) -> CoreTimeline:
        """One core, also if not all are at hand."""
        return self.cores[number]
