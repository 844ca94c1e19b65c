"""The cores that live in one process, and what they keep between launches.

A group links a program once per core and keeps the result, so a repeated launch costs no more than
running it. Linked code holds views into the HBM stack; when a stack moves, it is linked anew.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nki_dist import arch
from nki_dist.errors import NkiError, typed
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit, Workspace
from nki_dist.linking.blas import one_blas_thread
from nki_dist.linking.link import link
from nki_dist.linking.memory import Places
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

KEPT_PROGRAMS = 8


@dataclass(frozen=True)
class StackView:
    """An HBM stack as a process sees it.

    Attributes:
        generation: equal generations mean the same memory.
        common: inputs that all ranks have in common.
    """

    memory: np.ndarray
    generation: Hashable
    common: np.ndarray | None = None


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


class CoreGroup:
    """Runs launches on its cores.

    Args:
        slots: the cores of this process.
        threads: that carry out a launch.

    Attributes:
        threads, without: of programs that are linked from then on: as given, and passes that are
            left out, those that the environment names if None.
    """

    def __init__(self, slots: Sequence[CoreSlot], threads: int = 1) -> None:
        self.slots = list(slots)
        self.threads, self._team = threads, Team()
        self.without: Collection[str] | None = None
        self._ready: OrderedDict[Any, dict[int, _Ready]] = OrderedDict()
        self._workspace = Workspace()
        self._pools: dict[int, Pool] = {}  # of each core
        self._brief = Pool()
        self.scheduler: Scheduler | None = None
        self._stopped = False

    def knows(self, key: Any) -> bool:
        return key in self._ready

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
        known: Sequence[Places] | None = None,
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
            known: what `places` gives for each program, if somebody has asked.

        Raises:
            NkiError: the first failure of any core, or the time is up.
            Stopped: another thread ended it.
        """
        kept = self._ready.setdefault(key, {})
        self._ready.move_to_end(key)
        while len(self._ready) > KEPT_PROGRAMS:
            self._ready.popitem(last=False)
        self._stopped = False
        scheduler = Scheduler(outside, payload, timeout)
        new = [
            slot
            for slot in self.slots
            if slot.core not in kept or kept[slot.core].generation != stacks[slot.rank].generation
        ]
        if new:
            self._link(kept, new, programs, offsets, stacks, known, scheduler.check_time)
        start = time.perf_counter()
        try:
            for slot in self.slots:
                ready = kept[slot.core]
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
            if kept[report.core].recorder.records:
                report.records = kept[report.core].recorder.take()
        return reports

    @uncollected(acyclic=True)
    def _link(
        self,
        kept: dict[int, _Ready],
        new: Iterable[CoreSlot],
        programs: Sequence[Program],
        offsets: Mapping[tuple[str, int], int],
        stacks: Mapping[int, StackView],
        known: Sequence[Places] | None,
        check_time: Callable[[], None],
    ) -> None:
        """Link the program of each of these cores, once for those that have the same, and bind
        it."""
        placed: dict[int, Placed] = {}
        without = left_out() if self.without is None else self.without
        for slot in new:
            of = slot.lnc_core
            try:
                if of not in placed:
                    found = None if known is None else known[of]
                    placed[of] = placed_program(
                        programs[of], found, self.threads, without, len(self.slots)
                    )
                kept[slot.core] = self._bind(slot, placed[of], offsets, stacks[slot.rank])
            except (NkiError, MemoryError) as error:
                failed = typed(error).at(core=slot.name)
                raise failed from failed.__cause__
            check_time()

    def _bind(
        self,
        slot: CoreSlot,
        placed: Placed,
        offsets: Mapping[tuple[str, int], int],
        stack: StackView,
    ) -> _Ready:
        own, program = self._pools.setdefault(slot.core, Pool()), placed.linked.program
        memory = Memory(
            program, placed.places, stack.memory, offsets, stack.common, own, self._brief
        )
        executor, recorder = ready(placed, slot, memory, self._workspace, self._team)
        return _Ready(executor, stack.generation, recorder)

    def progress(self) -> tuple[int, int]:
        """Instructions done and cores finished in the current launch; any thread may ask."""
        scheduler = self.scheduler
        if scheduler is None:
            return 0, 0
        runs = list(scheduler.cores.values())
        return sum(r.executor.done for r in runs), sum(r.finished for r in runs)

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
        self._pools.clear()
        self._brief.clear()
        self._team.close()


def placed_program(
    program: Program,
    known: Places | None = None,
    threads: int = 1,
    without: Collection[str] | None = None,
    cores: int = 1,
) -> Placed:
    """A program, linked and placed.

    Args:
        known: what `places` gives for it, if somebody has asked.
        threads: that may carry it out.
        without: passes that are left out; those that the environment names if None.
        cores: of this process.
    """
    platform, without = arch.get(program.platform), left_out() if without is None else without
    return Placed(link(program, platform, without), platform, known, without, threads, cores)


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
