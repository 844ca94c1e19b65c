"""Running compiled programs once more in this process: the order of a launch, and its bits.

The kernel itself can't be run again, as its Python may have effects; the programs can, because they
are deterministic. `carry_out` is for whoever has executors of their own; `run_again` takes the
ordinary linker. Some questions about a debugged launch have their answer only then: whether a race
between two cores has changed values, what outputs hold that nobody wrote, what NKI_PRECISE_FP=0
makes of all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.hbm.layout import Layout, common_inputs, fill_common, fill_stack, lay_out
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Workspace
from nki_dist.linking.blas import one_blas_thread
from nki_dist.linking.memory import places
from nki_dist.ops.alignment import aligned
from nki_dist.program import Program
from nki_dist.runtime.executor import Executor
from nki_dist.runtime.group import CoreReport, make_reports, placed_program, ready
from nki_dist.runtime.memory import Memory, Pool
from nki_dist.runtime.recorder import Recorder
from nki_dist.runtime.scheduler import Scheduler

Inputs = Callable[[int, Compiled], Sequence[np.ndarray]]
# Gives what runs a core, of its memory and of scratch that the cores share.
Make: TypeAlias = "Callable[[CoreSlot, Program, Memory, Workspace], Executor]"


class _Zeroed(Pool):
    """Buffers that hold zeros at first, so that runs agree in what nobody writes or reads."""

    def add(self, buffer: np.ndarray) -> None:
        buffer.fill(0)
        super().add(buffer)


def carry_out(
    slots: Sequence[CoreSlot],
    compiled: Sequence[Compiled],
    arrays: Sequence[Sequence[np.ndarray]],
    make: Make,
    timeout: float | None = None,
) -> tuple[list[Layout], list[np.ndarray], Scheduler]:
    """Run the programs of a launch, which may be others for every rank.

    Args:
        slots: all cores of the world.
        compiled: per rank, as it is run.
        arrays: per rank, with the types of its programs, by index.
        make: see Make.
        timeout: seconds after which it is given up; None for never.

    Returns:
        Layouts and HBM stacks per rank, and the scheduler, which is closed.

    Raises:
        NkiError: the first failure of any core; the time is up.
    """
    equal = all(c is compiled[0] for c in compiled)
    common = common_inputs(arrays) if equal else frozenset[int]()
    every = [compiled[0]] if equal else compiled
    layouts = [lay_out(c, common) for c in every] * (len(compiled) if equal else 1)
    stacks = [aligned(max(layout.stack_bytes, 1)) for layout in layouts]
    shared = aligned(max(layouts[0].common_bytes, 1))
    fill_common(layouts[0], shared, arrays[0])
    for filled in zip(layouts, stacks, arrays):
        fill_stack(*filled)
    scheduler, workspace, brief = Scheduler(timeout=timeout), Workspace(), _Zeroed()
    try:
        for slot in slots:
            where = stacks[slot.rank], layouts[slot.rank].offsets, shared
            program = compiled[slot.rank].programs[slot.lnc_core]
            memory = Memory(program, places(program), *where, _Zeroed(), brief)
            scheduler.add(make(slot, program, memory, workspace))
            scheduler.check_time()
        with one_blas_thread():
            scheduler.run()
    finally:
        scheduler.close()
    return layouts, stacks, scheduler


def run_again(
    slots: Sequence[CoreSlot], compiled: Sequence[Compiled], inputs: Inputs
) -> tuple[list[Layout], list[np.ndarray], list[CoreReport]]:
    """Run the programs of a launch as other hosts do; nothing is printed.

    Args:
        slots, compiled: as of `carry_out`.
        inputs: the arrays of a rank, with the types of its programs.

    Returns:
        Layouts and HBM stacks per rank, and what each core reports.

    Raises:
        NkiError: the first failure of any core.
    """
    recorders: dict[int, Recorder] = {}

    def make(slot: CoreSlot, program: Program, memory: Memory, workspace: Workspace) -> Executor:
        ran, recorders[slot.core] = ready(placed_program(program), slot, memory, workspace)
        return ran

    start = time.perf_counter()
    arrays = [inputs(rank, launch) for rank, launch in enumerate(compiled)]
    layouts, stacks, scheduler = carry_out(slots, compiled, arrays, make)
    reports = make_reports(scheduler, time.perf_counter() - start)
    for report in reports:
        report.records = recorders[report.core].records
    return layouts, stacks, reports
