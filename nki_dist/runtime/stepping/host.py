"""One debugged launch: every core's kernel runs once, as it is called, and is checked afterwards.

On other hosts a kernel is traced, checked as a whole and then run. Here running comes with tracing,
because Python in the kernel is to see values; what the passes find is found when all cores have
finished. So a mistake that shows when the kernel runs is reported before one that a pass would
have found first.

Every rank runs the kernel's Python, too, so ranks may have different programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from nki_dist.arch import Arch
from nki_dist.checks import Checks
from nki_dist.compiler.compile import (
    Bind,
    CheckOutputs,
    check_core,
    check_kernel,
    check_launch,
    is_beta1,
    note_style,
    trace_core,
)
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.config import checks_of
from nki_dist.compiler.passes.accumulate import resolve_accumulation
from nki_dist.compiler.passes.uninitialised import check_uninitialised
from nki_dist.errors import NkiError, OutOfBoundsError, UninitializedReadError
from nki_dist.hbm.layout import Layout, lay_out
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Workspace
from nki_dist.linking.blas import one_blas_thread
from nki_dist.program import Program, TensorSignature
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.group import CoreReport, make_reports
from nki_dist.runtime.scheduler import Scheduler
from nki_dist.runtime.stepping.again import Inputs, run_again
from nki_dist.runtime.stepping.machine import Place
from nki_dist.runtime.stepping.memory import Arena, RankMemory
from nki_dist.runtime.stepping.trace import DebugTrace
from nki_dist.runtime.stepping.turns import Alone, InThread
from nki_dist.topology.topology import Topology


@dataclass(frozen=True)
class Question:
    """What is to be run.

    Attributes:
        function, name, arch, grid, outputs_of, checks, precise: as of `compile_kernel`.
        binds, signatures, arrays: per rank, what makes the kernel's arguments, the tensors among
            them, and these as arrays by index.
        inputs: the arrays of a rank, with the types of its programs.
        slots: all cores.
        world: where they sit.
        printer: called with (core, prefix, array) by device_print.
        timeout: seconds after which the launch is given up; None for never.
    """

    function: Callable[..., Any]
    name: str
    arch: Arch
    grid: Grid
    outputs_of: CheckOutputs
    checks: Checks
    precise: bool
    binds: Sequence[Bind]
    signatures: Sequence[Sequence[TensorSignature]]
    arrays: Sequence[Sequence[np.ndarray[Any, Any]]]
    inputs: Inputs
    slots: Sequence[CoreSlot]
    world: Topology
    printer: Callable[[int, str, np.ndarray[Any, Any]], None]
    timeout: float | None


@dataclass
class Stepped:
    """What is left of a debugged launch.

    Attributes:
        compiled: per rank, what ran, without dynamic loops.
        layouts, memories: per rank, its HBM stack.
        reports: per core.
    """

    compiled: list[Compiled]
    layouts: list[Layout]
    memories: list[np.ndarray[Any, Any]]
    reports: list[CoreReport]


@dataclass
class _Core:
    """One core's kernel.

    Attributes:
        trace: that records and runs it.
        program: what it recorded, once it has ended.
        functions: the user's, that took part.
        arguments: of the kernel.
    """

    trace: DebugTrace
    program: Program | None = None
    functions: set[CodeType] = field(default_factory=set)
    arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})


@uncollected()
def run_debugged(question: Question) -> Stepped:
    """Run a kernel on all cores of a world, in turn.

    Raises:
        NkiError: the first failure of any core, or what the checks of other hosts find.
        DeadlockError: cores wait for messages that nobody will send, or the time is up.
    """
    check_kernel(question.function, question.checks)
    question = replace(question, checks=checks_of(question.function, question.checks))
    launch = _Launch(question)
    launch.run()
    compiled = [launch.checked(rank) for rank in range(len(question.binds))]
    reports = make_reports(launch.scheduler, launch.seconds)
    if launch.needs_results or any(c.watched for c in compiled):
        as_run = [c.as_run for c in compiled]
        layouts, memories, ordinary = run_again(question.slots, as_run, question.inputs)
        for report, recorded in zip(reports, ordinary):
            report.records = recorded.records
    else:
        layouts = [lay_out(c) for c in compiled]
        memories = [r.stack(c, at) for r, c, at in zip(launch.ranks, compiled, layouts)]
    return Stepped(compiled, layouts, memories, reports)


class _Launch:
    def __init__(self, question: Question) -> None:
        self.question = q = question
        self.scheduler = Scheduler(timeout=q.timeout)
        self.seconds = 0.0
        arena, workspace = Arena(), Workspace()
        self.ranks = [RankMemory(arrays, arena) for arrays in q.arrays]
        self.cores: dict[int, _Core] = {}
        for slot in q.slots:
            place = Place(
                slot,
                q.world,
                q.checks.strict,
                self.ranks[slot.rank],
                arena,
                workspace,
                partial(q.printer, slot.core),
            )
            self._add(slot, place)

    def _add(self, slot: CoreSlot, place: Place) -> None:
        q = self.question
        beta1 = is_beta1(q.function)
        trace = DebugTrace(place, q.name, q.arch, slot.lnc_core, q.grid.cores, q.checks, beta1)
        if q.checks.unwritten == "zero":  # as the checks will say of it
            trace.program.facts["zeroed"] = True
        core = self.cores[slot.core] = _Core(trace)
        body = partial(self._body, core, q.binds[slot.rank])
        if len(q.slots) == 1:
            trace.machine.turns = Alone(body, lambda: self.scheduler.cores[slot.core])
        else:
            trace.machine.turns = InThread(body, f"{q.name} on core {slot.name}")

    def _body(self, core: _Core, bind: Bind) -> None:
        q, trace = self.question, core.trace
        core.arguments = bind(trace)
        core.program = trace_core(q.function, q.grid, trace, *core.arguments, q.outputs_of)
        core.functions = set(trace.locations.functions)

    def run(self) -> None:
        start = time.perf_counter()
        try:
            for core in self.cores.values():
                self.scheduler.add(core.trace.machine)
            with one_blas_thread():
                self.scheduler.run()
        except OutOfBoundsError as error:
            self._explain(error)
            raise
        except RuntimeError as error:
            if isinstance(error.__cause__, StopIteration):  # the kernel's, in a coroutine of ours
                raise error.__cause__ from None
            raise
        finally:
            self.scheduler.close()
        self.seconds = time.perf_counter() - start

    def _explain(self, error: OutOfBoundsError) -> None:
        """Raise what is wrong with an index that nobody wrote, in place of where it led.

        Other hosts find such an index before anything runs.
        """
        for rank in range(len(self.ranks)):
            cores = [self.cores[slot.core] for slot in self.question.slots if slot.rank == rank]
            programs = [core.trace.finish() for core in cores]
            try:
                for program in programs:
                    resolve_accumulation(program)
                check_uninitialised(programs, self.question.checks)
            except UninitializedReadError as found:
                if found.location == error.location:
                    raise found from error
            except NkiError:
                continue  # of a program that isn't whole; what stopped it is to be told

    @property
    def needs_results(self) -> bool:
        """Whether what ran isn't what the programs say; see DebugTrace and compiler.widen."""
        late = any(core.trace.rewritten_late for core in self.cores.values())
        return late or not self.question.precise

    def checked(self, rank: int) -> Compiled:
        """A rank's programs, after the passes of an ordinary launch."""
        q = self.question
        cores = [self.cores[slot.core] for slot in q.slots if slot.rank == rank]
        programs = []
        for core in cores:
            assert core.program is not None
            check_core(core.program, q.arch, q.checks)
            programs.append(core.program)
        checks = q.checks
        if any(core.trace.skipped for core in cores) and checks.unwritten == "error":
            # Whether a body without rounds would have stored an output isn't in the programs: what
            # memory holds after the run tells, as it does on other hosts.
            checks = replace(checks, unwritten="nan")
        check_launch(programs, q.arch, checks, q.precise)
        if not is_beta1(q.function):
            functions = {code for core in cores for code in core.functions}
            note_style(programs[0], q.function, q.grid, *cores[-1].arguments, functions, q.checks)
        return Compiled(programs, list(q.signatures[rank]))
