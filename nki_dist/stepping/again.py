"""Running once more what a debugged launch recorded, with the ordinary linker and executor.

Some questions have their answer only when all cores' programs are known: whether a race between two
cores has changed values, what outputs hold that nobody wrote, what NKI_PRECISE_FP=0 makes of all of
it. The kernel itself can't be run again, as its Python may have effects; the programs can, because
they are deterministic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.hbm.layout import Layout, fill_stack, lay_out
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Workspace
from nki_dist.ops.alignment import aligned
from nki_dist.runtime.group import CoreReport, make_reports, placed_program, ready
from nki_dist.runtime.memory import Memory
from nki_dist.runtime.scheduler import Scheduler

Inputs = Callable[[int, Compiled], Sequence[np.ndarray]]


def run_again(
    slots: Sequence[CoreSlot], compiled: Sequence[Compiled], inputs: Inputs
) -> tuple[list[Layout], list[np.ndarray], list[CoreReport]]:
    """Run the programs of a launch, which may be others for every rank.

    Args:
        slots: all cores of the world.
        compiled: per rank, as it is run.
        inputs: the arrays of a rank, with the types of its programs.

    Returns:
        Layouts and HBM stacks per rank, and what each core reports; nothing is printed.

    Raises:
        NkiError: the first failure of any core.
    """
    layouts, stacks = [], []
    for rank, launch in enumerate(compiled):
        layouts.append(lay_out(launch))
        stacks.append(aligned(layouts[-1].stack_bytes))
        fill_stack(layouts[-1], stacks[-1], inputs(rank, launch))
    scheduler, workspace, recorders = Scheduler(), Workspace(), {}
    start = time.perf_counter()
    try:
        for slot in slots:
            program = compiled[slot.rank].programs[slot.lnc_core]
            placed = placed_program(program)
            memory = Memory(program, placed.places, stacks[slot.rank], layouts[slot.rank].offsets)
            executor, recorders[slot.core] = ready(placed, slot, memory, workspace)
            scheduler.add(executor)
        scheduler.run()
    finally:
        scheduler.close()
    reports = make_reports(scheduler, time.perf_counter() - start)
    for report in reports:
        report.records = recorders[report.core].records
    return layouts, stacks, reports
