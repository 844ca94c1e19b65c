"""`python -m bench.instructions`: each instruction against the plain NumPy float32 expression.

What is timed is the linked instruction: what a core does for it in a kernel that runs again. Both
sides run in turn, in this process, with one BLAS thread. Both only compute, so what other programs
on the machine do can only make them slower: the shortest of many runs counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import Pair, seconds, show
from bench.instruction_cases import Case, cases
from nki_dist import arch, dtypes
from nki_dist.compiler.compile import compile_kernel
from nki_dist.compiler.compiled import Grid
from nki_dist.isa.core import CoreSlot
from nki_dist.launcher.binding import collect_outputs
from nki_dist.linking.linked import Segment
from nki_dist.ops.alignment import padded
from nki_dist.program import Program, TensorSignature
from nki_dist.runtime.group import placed_program, ready
from nki_dist.runtime.memory import Memory

LIMIT = 5.0  # times the NumPy expression
LEAST = 3e-4  # seconds that one run lasts at least
RUNS = 25


def kernel_of(case: Case) -> Callable[..., Any]:
    """A kernel that loads the inputs, issues the instruction and stores its results."""

    def kernel(found: list[int], *arrays: Any) -> Any:
        tiles = list(arrays)
        if not case.hbm:
            tiles = [nl.load(a) for a in arrays]
        outputs = [nl.ndarray(s, dtype=d, buffer=m) for s, d, m in case.outputs]
        for o in outputs:
            if o.buffer == nl.sbuf:
                nisa.memset(o, 0)
        found.append(case.issue(*tiles, *outputs).instruction.ordinal)
        return [_stored(o) for o in outputs]

    return kernel


def _stored(tile: Any) -> Any:
    if tile.buffer == nl.psum:
        tile = nl.copy(tile)
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def compiled(case: Case) -> tuple[Program, int]:
    """The program, and the number of the instruction in it."""
    signatures = [
        TensorSignature(n, a.shape, dtypes.of(a.dtype), f"arg{n}")
        for n, a in enumerate(case.inputs)
    ]
    found: list[int] = []

    def bind(trace: Any) -> tuple[tuple, dict]:
        return (found, *(trace.input(s.index, s.shape, s.dtype, s.name) for s in signatures)), {}

    kernel = kernel_of(case)
    platform = arch.get(case.platform)
    outputs = collect_outputs(kernel)
    grid = Grid((), 1, ())
    done = compile_kernel(kernel, case.instruction, platform, grid, bind, signatures, outputs)
    return done.programs[0], found[-1]


def linked(case: Case) -> Callable[[], None]:
    """The instruction as a function, after the whole program ran once."""
    program, ordinal = compiled(case)
    offsets, size = {}, 0
    for s in program.storages:
        if s.role in ("input", "shared"):
            offsets[s.role, s.index] = size
            size += padded(s.nbytes)
    stack = np.zeros(size, np.uint8)
    for n, a in enumerate(case.inputs):
        at = offsets["input", n]
        stack[at : at + a.nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    placed = placed_program(program)
    executor, _ = ready(placed, CoreSlot(), Memory(program, placed.places, stack, offsets))
    for _ in executor.run():
        raise AssertionError(f"{case.instruction} waits for another core")
    blocks = executor.linked
    steps = [
        step
        for segment in blocks
        if isinstance(segment, Segment)
        for step, i in zip(segment.steps, segment.instructions)
        if i.ordinal == ordinal
    ]
    return steps[-1]  # before it, storages that begin to live there


def measure(case: Case) -> Pair:
    """Shortest seconds of the instruction and of the NumPy expression."""
    both = [(f, _calls(f)) for f in (linked(case), partial(case.plain, *case.inputs))]
    best = [float("inf")] * 2
    with np.errstate(all="ignore"):
        for _ in range(RUNS):
            for side, (function, calls) in enumerate(both):
                taken = seconds(partial(_repeat, function, calls)) / calls
                best[side] = min(best[side], taken)
    return Pair(*best)


def _calls(function: Callable[[], Any]) -> int:
    """How many calls make a run long enough for the clock."""
    with np.errstate(all="ignore"):
        function()
        return max(1, round(LEAST / seconds(function)))


def _repeat(function: Callable[[], Any], calls: int) -> None:
    for _ in range(calls):
        function()


def rows(wanted: frozenset[str] = frozenset()) -> Iterator[tuple[str, Pair, str]]:
    """(name, seconds, remark) of each case."""
    with threadpool_limits(1):
        for case in cases():
            if wanted and case.instruction not in wanted:
                continue
            name = case.instruction + (f", {case.form}" if case.form else "")
            pair = measure(case)
            slow = pair.ratio > LIMIT
            yield name, pair, (case.reason or "over the limit") if slow else ""


def main() -> None:
    found = rows(frozenset(sys.argv[1:]))
    show(
        ("instruction", "us", "NumPy us", "ratio", ""),
        ((name, *pair.cells(1e6, 1), remark) for name, pair, remark in found),
    )


if __name__ == "__main__":
    main()
