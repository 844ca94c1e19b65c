"""The cores that live in one process, and what they keep between launches.

A group links a program once and binds it to each core, and keeps both, so a repeated launch costs
no more than running it. A binding holds views into the HBM stack, and of tensors that stay in HBM;
when a stack moves, or other tensors are arguments, the program is bound anew.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist import arch
from nki_dist.errors import NkiError
from nki_dist.hbm.contents import Places
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit, Workspace
from nki_dist.linking.blas import one_blas_thread
from nki_dist.linking.link import link
from nki_dist.linking.located import typed
from nki_dist.linking.memory import Places as LocalPlaces
from nki_dist.linking.passes import left_out
from nki_dist.linking.placing import Placed
from nki_dist.program import Program
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.binding import Binder
from nki_dist.runtime.cores import make_core
from nki_dist.runtime.executor import Executor, Stopped
from nki_dist.runtime.memory import Memory, Pool
from nki_dist.runtime.messages import Message, title
from nki_dist.runtime.overdue import Position
from nki_dist.runtime.recorder import Record, Recorder
from nki_dist.runtime.scheduler import Scheduler
from nki_dist.runtime.team import Team

CACHED_PROGRAMS: Final = 8  # bindings that are kept, however large they are
CACHED_BINDINGS: Final = 512  # and while they are small
CACHED_VIEWS: Final = 1 << 19  # views and constants of those beyond CACHED_PROGRAMS


@dataclass(frozen=True)
class StackView:
    """An HBM stack as a process sees it.

    Attributes:
        generation: equal generations mean the same memory.
        common: inputs that all ranks have in common.
        regions: by number, the memory of tensors that stay in HBM; none ever moves.
    """

    memory: np.ndarray
    generation: Hashable
    common: np.ndarray | None = None
    regions: Mapping[int, np.ndarray] = field(default_factory=dict)


@dataclass
class CoreReport:
    """What a core tells after a launch.

    Attributes:
        trips: rounds of each dynamic loop, in the order loops were entered.
        done: instructions executed.
        messages, message_bytes: sent to other cores.
        records: what watched instructions read and wrote.
        host_seconds: time the process spent running all its cores.
        sent: by (core, channel), how many messages, and the operation and line of the last one.
        taken: by (core, channel), how many of the messages from there were received.
    """

    core: int
    trips: list[int]
    done: int
    messages: int
    message_bytes: int
    host_seconds: float
    records: list[Record] = field(default_factory=list)
    sent: dict[tuple[int, str], tuple[int, str, str | None]] = field(default_factory=dict)
    taken: dict[tuple[int, str], int] = field(default_factory=dict)


@dataclass
class _Ready:
    executor: Executor
    generation: Hashable
    recorder: Recorder
    views: int


class CoreGroup:
    """Runs launches on its cores.

    Args:
        slots: the cores of this process.
        threads: that carry out a launch.

    Attributes:
        threads, without: of programs that are linked from then on: as given, and passes that are
            left out, those that the environment names if None.
        linked: programs by name, and by core of a rank.
    """

    def __init__(self, slots: Sequence[CoreSlot], threads: int = 1) -> None:
        self.slots = list(slots)
        self.threads, self._team = threads, Team()
        self.without: Collection[str] | None = None
        # By program; and by program and places, what was used last at the end.
        self.linked: dict[Any, dict[int, Placed]] = {}
        self._ready: OrderedDict[tuple[Any, Places], dict[int, _Ready]] = OrderedDict()
        self._views = 0  # of all that is ready
        self._workspace = Workspace()
        self._pools: dict[int, Pool] = {}  # of each core
        self._brief = Pool()
        self.scheduler: Scheduler | None = None
        self._stopped = False

    def run(
        self,
        key: Any,
        programs: Sequence[Program],
        offsets: Mapping[tuple[str, int], int],
        stacks: Mapping[int, StackView],
        emit: Callable[[int, str, np.ndarray], None],
        outside: Callable[[Message], None] | None = None,
        pump: Callable[[Scheduler], bool] | None = None,
        payload: Callable[..., np.ndarray] | None = None,
        timeout: float | None = None,
        local: Sequence[LocalPlaces] | None = None,
        places: Places = (),
    ) -> list[CoreReport]:
        """Run one launch to its end.

        Args:
            key: names the launch's program; what was linked for it is kept.
            programs: one per core of a rank.
            offsets: layout of the stack.
            stacks: the HBM stack of each rank.
            emit: called with (core, prefix, array) by device_print.
            outside: sends a message to a core of another process.
            pump: waits for messages from other processes and delivers them; False when there will
                be none.
            payload: makes arrays that `outside` can send cheaply.
            timeout: seconds after which the launch is given up; None for never.
            local: where each program's local storages lie, if that is worked out.
            places: of the tensors that stay in HBM.

        Raises:
            NkiError: the first failure of any core, or the time is up.
            Stopped: another thread ended it.
        """
        which = key, places
        bound = self._ready.setdefault(which, {})
        self._ready.move_to_end(which)
        self._stopped = False
        scheduler = Scheduler(outside, payload, timeout)
        new = [
            slot
            for slot in self.slots
            if slot.core not in bound or bound[slot.core].generation != stacks[slot.rank].generation
        ]
        if new:

            def memory(slot: CoreSlot, of: Placed) -> Memory:
                stack, per_core = stacks[slot.rank], self._pools.setdefault(slot.core, Pool())
                resident = {key: stack.regions[region][at:] for key, (region, at) in places}
                where = stack.memory, offsets, stack.common, per_core, self._brief, resident
                return Memory(of.linked.program, of.places, *where)

            check_time = scheduler.check_time
            self._bind(new, bound, key, programs, local, memory, stacks, check_time)
            self._forget_old()
        start = time.perf_counter()
        try:
            for slot in self.slots:
                ready = bound[slot.core]
                ready.recorder.records.clear()  # those of a launch that failed are left
                ready.executor.core.wires.print = partial(emit, slot.core)
                scheduler.add(ready.executor)
            self.scheduler = scheduler
            if self._stopped:  # while it was linked
                raise Stopped
            with one_blas_thread():
                scheduler.run(pump)
        finally:
            scheduler.close()
            self.scheduler = None
        reports = make_reports(scheduler, time.perf_counter() - start)
        for report in reports:
            if bound[report.core].recorder.records:
                report.records = bound[report.core].recorder.take()
        return reports

    @uncollected(acyclic=True)
    def _bind(
        self,
        new: Iterable[CoreSlot],
        bound: dict[int, _Ready],
        key: Any,
        programs: Sequence[Program],
        local: Sequence[LocalPlaces] | None,
        memory: Callable[[CoreSlot, Placed], Memory],
        stacks: Mapping[int, StackView],
        check_time: Callable[[], None],
    ) -> None:
        """Bind their programs to these cores; equal ones are linked once."""
        without = left_out() if self.without is None else self.without
        linked = self.linked.setdefault(key, {})
        for slot in new:
            n = slot.lnc_core
            with _at(slot):
                if n not in linked:
                    found = None if local is None else local[n]
                    linked[n] = placed_program(
                        programs[n], found, self.threads, without, len(self.slots)
                    )
                of = linked[n]
                pair = ready(of, slot, memory(slot, of), self._workspace, self._team)
            old, views = bound.get(slot.core), len(of.arguments)
            bound[slot.core] = _Ready(pair[0], stacks[slot.rank].generation, pair[1], views)
            self._views += views - (old.views if old else 0)
            check_time()

    def _forget_old(self) -> None:
        """Keep what was used last: a few bindings of any size, and many small ones."""
        ready = self._ready
        while len(ready) > CACHED_BINDINGS or (
            len(ready) > CACHED_PROGRAMS and self._views > CACHED_VIEWS
        ):
            self._drop(next(iter(ready)))

    def _drop(self, which: tuple[Any, Places]) -> None:
        key, _ = which
        self._views -= sum(r.views for r in self._ready.pop(which).values())
        if all(key != other for other, _ in self._ready):
            self.linked.pop(key, None)

    def forget_region(self, number: int) -> None:
        """Drop what is bound to tensors in a region that goes away."""
        for key, places in list(self._ready):
            if any(region == number for _, (region, _) in places):
                self._drop((key, places))

    def progress(self) -> tuple[int, int]:
        """Instructions done and cores finished in the current launch; any thread may ask."""
        scheduler = self.scheduler
        return (0, 0) if scheduler is None else scheduler.progress()

    def running(self) -> tuple[Position, ...]:
        """Where the core is whose turn it is, if there is a launch; any thread may ask."""
        scheduler = self.scheduler
        return () if scheduler is None else tuple(scheduler.running())

    def stop(self) -> None:
        """End the current launch at the next opportunity; safe to call from another thread.

        `run` shows its cores here first and looks at `_stopped` then, so none slips through.
        """
        self._stopped = True
        scheduler = self.scheduler
        if scheduler is not None:
            for run in list(scheduler.cores.values()):
                run.executor.ends = -math.inf

    def forget(self) -> None:
        """Drop everything that was linked, and with it the views into the stacks."""
        self._ready.clear()
        self.linked.clear()
        self._views = 0
        self._pools.clear()
        self._brief.clear()
        self._team.close()


@contextmanager
def _at(slot: CoreSlot) -> Iterator[None]:
    """Errors are those of a core."""
    try:
        yield
    except (NkiError, MemoryError) as error:
        failed = typed(error).at(core=slot.name)
        raise failed from failed.__cause__


def placed_program(
    program: Program,
    local: LocalPlaces | None = None,
    threads: int = 1,
    without: Collection[str] | None = None,
    cores: int = 1,
) -> Placed:
    """A program, linked and placed.

    Args:
        local: what `places` gives for it, if that is worked out.
        threads: that may carry it out.
        without: passes that are left out; those that the environment names if None.
        cores: of this process.
    """
    platform, without = arch.get(program.platform), left_out() if without is None else without
    return Placed(link(program, platform, without), platform, local, without, threads, cores)


def ready(
    placed: Placed,
    slot: CoreSlot,
    memory: Memory,
    workspace: Workspace | None = None,
    team: Team | None = None,
) -> tuple[Executor, Recorder]:
    """A program that is bound to a core, and what records its watched instructions."""
    program = placed.linked.program
    core = make_core(program, slot)
    binder = Binder(placed, memory, Kit(memory.buffer, core, placed.arch, workspace))
    return Executor(program, binder.bind(), core, team), binder.recorder


def make_reports(scheduler: Scheduler, seconds: float) -> list[CoreReport]:
    """What the cores of a scheduler tell after they have run for so long."""
    return [
        CoreReport(
            core,
            run.executor.trips,
            run.executor.done,
            run.messages,
            run.message_bytes,
            seconds,
            sent={key: (n, title(what), line) for key, (n, what, line) in run.sent.items()},
            taken=run.taken,
        )
        for core, run in scheduler.cores.items()
    ]
