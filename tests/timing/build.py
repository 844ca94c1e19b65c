"""Compiling and running small kernels for the tests of simulated time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from nki_dist import arch, dtypes
from nki_dist.compiler.compile import compile_kernel
from nki_dist.compiler.compiled import Grid
from nki_dist.hbm.layout import fill_stack, lay_out
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Instruction, TensorSignature
from nki_dist.runtime.group import placed_program, ready
from nki_dist.runtime.memory import Memory
from nki_dist.runtime.scheduler import Scheduler
from nki_dist.timing import prepared
from nki_dist.timing.timeline import Timeline


def replay(*launch: Any, **options: Any) -> Timeline:
    """Simulated times of all cores of a launch; takes what `prepared` takes."""
    return prepared(*launch, **options).replayed()


class Event(NamedTuple):
    """One instruction's time on its engine or queue."""

    core: int
    queue: str
    position: int
    start: float
    end: float
    instruction: Instruction
    reason: str


def events(timeline: Timeline) -> Iterator[Event]:
    """Every instruction that takes time, core by core in program order."""
    for number, c in enumerate(timeline.cores):
        for at, i in enumerate(c.graph.executed):
            if at not in c.dropped:
                queue = c.queues[c.queue[at]]
                yield Event(number, queue, at, c.start[at], c.end[at], i, c.reason[at])


def executed(kernel, arrays, cores=1, change=lambda program: program):
    """Run a kernel on float32 arrays: bytes of its HBM stack, its programs, trip counts, arch."""
    launch, machine = _launch(kernel, [a.shape for a in arrays], cores, dtypes.float32, "trn2")
    layout = lay_out(launch)
    stack = np.zeros(layout.stack_bytes, np.uint8)
    fill_stack(layout, stack, arrays)
    scheduler = Scheduler()
    executors = []
    for program in map(change, launch.programs):
        placed = placed_program(program)
        memory = Memory(program, placed.places, stack, layout.offsets)
        slot = CoreSlot(program.core, 0, program.core, program.cores)
        executors.append(ready(placed, slot, memory)[0])
        scheduler.add(executors[-1])
    scheduler.run()
    return stack, launch.programs, [e.trips for e in executors], machine


def compiled(kernel, shapes, cores=1, dtype=dtypes.float32, platform="trn2"):
    """The programs of a kernel whose arguments are tensors of the given shapes, and the arch.

    `platform` is a name, or an arch.
    """
    launch, machine = _launch(kernel, shapes, cores, dtype, platform)
    return launch.programs, machine


def _launch(kernel, shapes, cores, dtype, platform):
    machine = arch.get(platform) if isinstance(platform, str) else platform
    signatures = [TensorSignature(n, s, dtype, f"x{n}") for n, s in enumerate(shapes)]

    def bind(trace):
        return tuple(trace.input(n, s, dtype, f"x{n}") for n, s in enumerate(shapes)), {}

    grid = Grid((cores,), cores, (0,)) if cores > 1 else Grid((), 1, ())
    result = compile_kernel(
        kernel, kernel.__name__, machine, grid, bind, signatures, lambda trace, r: r
    )
    return result, machine
