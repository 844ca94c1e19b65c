"""How what every stage costs grows: with instructions, and with ranks. Fails above its bound.

    python -m bench.growth [--sizes 1000,10000,100000] [--ranks 1,...,16384] [--shapes tiles ...]

A stage's growth between two sizes is the exponent `g` of `cost = size^g`: 1 is a cost that grows as
its program does, 2 a step that looks at everything for everything. Costs are processor time, the
least of several turns, in each of which all sizes follow each other: whatever else runs on the
machine makes a turn longer, never shorter, and slows all sizes of a turn. A cost below `LEAST`
seconds is taken as that much, because there is no time in it to measure; what is quadratic grows
beyond it.

Stages are those of a launch and of what is asked about it: "trace" is a kernel's Python, "passes"
what looks at programs afterwards, "link" and "run" a launch's, "races" the comparison of what the
two cores of a rank stored and loaded; "estimate" is replay and summary of a launch that isn't made,
beside its order graphs. Time within another stage counts for the inner one alone.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.estimate import SHAPES
from bench.scale import layer
from nki_dist.compiler import compile as compiling
from nki_dist.compiler.encode import encode
from nki_dist.launcher import findings
from nki_dist.report.page import write_page
from nki_dist.runtime import group
from nki_dist.timing import replay

SIZES = (1_000, 10_000, 100_000)
RANKS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
LEAST = 0.01  # seconds
BOUND = (
    1.3  # n log n from 1,000 to 10,000 is 1.12; caches that no longer hold a program add as much
)
NODE = 64  # ranks of an instance
TURNS = 3
CHECK = "unwritten=zero"  # most sizes leave a tail of the output unwritten

Costs = dict[str, float]  # of each stage, in seconds


def _cut(x: Any, count: int) -> Iterator[tuple[slice, slice]]:
    """Boxes of 16 rows and 64 columns, one beside the other."""
    for n in range(count):
        row, column = divmod(n, x.shape[1] // 64)
        yield slice(16 * row, 16 * row + 16), slice(64 * column, 64 * column + 64)


def strips(x: Any, count: int) -> Any:
    """Load, scale, store; every box of HBM is stored once."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for box in _cut(x, count // 3):
        tile = nl.load(x[box])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        nl.store(out[box], tile)
    return out


def halves(x: Any, count: int) -> Any:
    """Both cores store the same into a tensor that they share, and load it again."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for box in _cut(x, count // 6):
        nl.store(out[box], nl.load(x[box]))
        again = nl.load(out[box])
    nl.store(out[box], again)
    return out


RUN: Mapping[str, tuple[Callable[..., Any], int]] = {"strips": (strips, 1), "halves": (halves, 2)}


def shape_of(program: str, count: int) -> tuple[int, int]:
    """Of the input: with room for as many boxes as the program has."""
    return (16 * (count // 768 + 1) if program in RUN else 128 * (count // 768 + 1)), 16384


FUNCTIONS = (
    (compiling, "trace_core", "trace"),
    (compiling, "check_core", "passes"),
    (compiling, "check_launch", "passes"),
    (group, "placed_program", "link"),
    (group, "ready", "link"),
    (findings, "check_races", "races"),
    (replay, "order", "order and footprints"),
)


class Clock:
    """Time by stage; what a stage spends in another one counts for that one only.

    Args:
        now: the seconds that have gone by; those of the processor by default.
    """

    def __init__(self, now: Callable[[], float] = time.process_time) -> None:
        self.costs: Costs = defaultdict(float)
        self._now = now
        self._inner = [0.0]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = self._now()
        self._inner.append(0.0)
        try:
            yield
        finally:
            took = self._now() - start
            self.costs[name] += took - self._inner.pop()
            self._inner[-1] += took

    @contextmanager
    def watching(self, *functions: tuple[Any, str, str]) -> Iterator[None]:
        """Under it, calls of functions (owner, name, stage) count as stages."""
        with ExitStack() as stack:
            for owner, name, stage in functions or FUNCTIONS:
                stack.enter_context(patch.object(owner, name, self._timed(owner, name, stage)))
            yield

    def _timed(self, owner: Any, name: str, stage: str) -> Any:
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(stage):
                return function(*args, **kwargs)

        return timed


def of_launch(shape: str, count: int, turn: int) -> Costs:
    """What each stage costs of a launch of so many instructions, and of questions about it."""
    count += 6 * turn  # another program, so that nothing of it is in a cache
    kernel, cores = RUN[shape]
    x = np.ones(shape_of(shape, count), np.float32)
    clock = Clock()
    with clock.watching(), nki.World(lnc=cores, host="inprocess", check=CHECK) as world:
        with clock.stage("launch, the rest"):
            world.run(kernel, x, count)
        with clock.stage("run"):
            (out,) = world.run(kernel, x, count)
    assert out[0, 0] == (3 if cores == 1 else 1)
    with nki.World(lnc=cores, host="inprocess", check=CHECK) as world:
        with clock.stage("record"):
            record = world.record(kernel, x, count)
        with clock.stage("record, asked"):
            assert record.first_non_finite() is None
            str(record.origin(output=0, index=(0, 0)))
    return dict(clock.costs)


def of_time(shape: str, count: int, turn: int) -> Costs:
    """What each stage costs of an estimate of so many instructions, and of its files."""
    count += 51 * (turn + 8)  # as above; a program with these numbers may have been launched
    kernel = {**SHAPES, **{name: k for name, (k, _) in RUN.items()}}[shape]
    spec = nki.TensorSpec(shape_of(shape, count), nl.float32)
    clock = Clock()
    cores = RUN.get(shape, (None, 1))[1]
    world = nki.World(lnc=cores, host="inprocess", check=CHECK)
    with clock.watching():
        with clock.stage("launcher"):
            compiled = world.compile(kernel, spec.hollow(), count)
        for schedule in ("program", "compiled"):
            with clock.stage(f"estimate, {schedule}"):
                profile = world.estimate(kernel, spec, count, schedule=schedule)
    with tempfile.TemporaryDirectory() as folder:
        with clock.stage("trace file"):
            profile.write_trace(Path(folder) / "trace.json")
        with clock.stage("report"):
            write_page(Path(folder) / "page.html", profile.to_dict(), profile.timeline, [])
    with clock.stage("encode"):
        for program in compiled.programs:
            encode(program)
    return dict(clock.costs)


def of_world(_: str, ranks: int, turn: int) -> Costs:
    """What each stage costs of a layer's skeleton, run dry on so many ranks, with its profile."""
    width = min(ranks, NODE)
    grid = np.arange(ranks).reshape(-1, width)
    clock = Clock()
    with clock.watching():
        with clock.stage("world and groups"):
            world = nki.World.trn2_ultraserver(ranks=ranks)
            groups = ncc.ReplicaGroup(grid.tolist()), ncc.ReplicaGroup(grid.T.tolist())
            pairs = np.stack([grid.ravel(), np.roll(grid, 1, axis=0).ravel()], axis=1).tolist()
        arguments = (layer, nki.TensorSpec((128, 2048 + 2 * turn), nl.bfloat16), *groups, pairs)
        with clock.stage("dry run"):
            report = world.dry_run(*arguments)
        for schedule in ("program", "compiled"):
            with clock.stage(f"dry run with profile, {schedule}"):
                report = world.dry_run(*arguments, profile=True, schedule=schedule)
    with tempfile.TemporaryDirectory() as folder, clock.stage("report"):
        profile = report.profile
        write_page(Path(folder) / "page.html", profile.to_dict(), profile.timeline, [])
    return dict(clock.costs)


Measure = Callable[[str, int, int], Costs]


@dataclass(frozen=True)
class Growth:
    """How a stage's cost grows.

    Attributes:
        program: what was measured.
        seconds: of each size, in their order.
    """

    program: str
    stage: str
    sizes: Sequence[int]
    seconds: Sequence[float]

    @property
    def exponents(self) -> list[float]:
        """From each size to the next; 0 where there is too little time to measure."""
        pairs = list(zip(self.sizes, self.seconds))
        return [
            math.log(max(t, LEAST) / max(s, LEAST)) / math.log(n / m)
            for (m, s), (n, t) in pairwise(pairs)
        ]

    @property
    def worst(self) -> float:
        return max(self.exponents, default=0.0)

    def row(self, bound: float) -> str:
        costs = " | ".join(f"{s:.3f}" for s in self.seconds)
        verdict = "" if self.worst <= bound else " **above**"
        return f"| {self.program} | {self.stage} | {costs} | {self.worst:.2f}{verdict} |"


def grown(measure: Measure, program: str, sizes: Sequence[int], turns: int = TURNS) -> list[Growth]:
    """How each stage of a program grows, from the least of several turns."""
    start = min(sizes)
    measure(program, start, 0)  # imports, tables and caches aren't a size's cost
    least: list[Costs] = [{} for _ in sizes]
    for turn in range(turns):
        for found, size in zip(least, sizes):
            gc.collect()  # what was before isn't this one's cost
            for stage, cost in measure(program, size, turn + 1).items():
                found[stage] = min(cost, found.get(stage, math.inf))
    stages = list(dict.fromkeys(stage for costs in least for stage in costs))
    return [Growth(program, s, sizes, [costs.get(s, 0.0) for costs in least]) for s in stages]


def tables(
    sizes: Sequence[int], ranks: Sequence[int], shapes: Sequence[str], turns: int
) -> Iterator[tuple[str, Sequence[int], list[tuple[Measure, str]]]]:
    yield (
        "instructions",
        sizes,
        [
            *((of_launch, name) for name in shapes if name in RUN),
            *((of_time, name) for name in shapes),
        ],
    )
    yield "ranks", ranks, [(of_world, "layer")]


def main(given: Sequence[str] | None = None) -> int:
    every = [*RUN, *SHAPES]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="instructions")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--shapes", nargs="*", choices=every, default=every)
    parser.add_argument("--turns", type=int, default=TURNS, help="the least of so many counts")
    parser.add_argument("--bound", type=float, default=BOUND, help="of the exponent")
    arguments = parser.parse_args(given)
    warnings.simplefilter("ignore")
    sizes, ranks = ([*map(int, text.split(","))] for text in (arguments.sizes, arguments.ranks))
    above = []
    for unit, of, measured in tables(sizes, ranks, arguments.shapes, arguments.turns):
        print(f"\nSeconds of processor time, by {unit}\n")
        print(f"| program | stage | {' | '.join(f'{n:,}' for n in of)} | exponent |")
        print("|---" * (len(of) + 3) + "|")
        for measure, program in measured:
            for growth in grown(measure, program, of, arguments.turns):
                print(growth.row(arguments.bound), flush=True)
                above += [growth] if growth.worst > arguments.bound else []
    for growth in above:
        print(
            f"{growth.program}, {growth.stage}: grows with exponent {growth.worst:.2f}, "
            f"more than {arguments.bound}",
            file=sys.stderr,
        )
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
