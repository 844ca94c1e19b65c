"""Rings of 16, 32 and 64 ranks, stage by stage: what of a launch grows how with the ranks.

`python -m bench.rings` runs an all-gather by a ring of one core per rank, written out step by step,
in this process. Each rank has the same chunk whatever the world, so what is gathered on all ranks
together grows with the square of the ranks, and so does the number of steps that all cores execute.
`NKI_REF` names a folder with a checkout of nki-library: then its `fine_grained_allgather` is
measured as well, on two cores per rank; at 64 ranks it takes twice as many channels.

"trace and passes" is compiling, once for all ranks; "link" and "run" are parts of the first
launch, which also fills and reads the stacks; "per step" is the first launch over all steps of all
cores. Each figure is the least of several turns; sizes take turns, as others share the machine.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.growth import Clock
from bench.harness import show
from nki_dist import compat
from nki_dist.launcher.session import session
from nki_dist.runtime.group import CoreGroup
from nki_dist.runtime.scheduler import Scheduler

SIZES = (16, 32, 64)
TURNS = 3
CHUNK = (16, 128)  # of each rank, bfloat16
COLUMNS = ("trace and passes", "link", "run", "first launch", "next launch", "dry run")


@nki.jit
def ring(x, ranks, group):
    """Block r of the result is what rank r had."""
    a, b = (nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in "12")
    nisa.dma_copy(dst=a, src=x)
    out = nl.ndarray((ranks, *x.shape), x.dtype, buffer=nl.shared_hbm)
    for step in range(ranks):
        rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)
        nisa.dma_copy(dst=out.select(0, rank), src=a)
        ncc.collective_permute_implicit([[a]], [[b]], group)
        nisa.tensor_copy(dst=a, src=b)
    return out


def own(ranks: int) -> tuple[Any, tuple[Any, ...]]:
    """The kernel above and its arguments but the first."""
    return ring, (ranks, ncc.ReplicaGroup([list(range(ranks))]))


def library(ranks: int) -> tuple[Any, tuple[Any, ...]]:
    """nki-library's kernel and its arguments but the first."""
    module = importlib.import_module("nkilib_src.nkilib.experimental.collectives.fg_allgather")
    return module.fine_grained_allgather, (ranks, 1, False)


def measure(
    kernel_of: Callable[[int], tuple[Any, tuple[Any, ...]]], ranks: int
) -> dict[str, float]:
    """Seconds of every stage in a new world, and how many steps its cores execute."""
    rng = np.random.default_rng(ranks)
    xs = [rng.standard_normal(CHUNK).astype(ml_dtypes.bfloat16) for _ in range(ranks)]
    kernel, rest = kernel_of(ranks)
    given = nki.per_rank(xs)
    session().cache._cache.clear()  # or the second turn would find the compiled kernel
    found: dict[str, float] = {}

    def timed(stage: str, call: Callable[[], Any]) -> Any:
        before = time.perf_counter()
        result = call()
        found[stage] = time.perf_counter() - before
        return result

    lnc = 1 if kernel is ring else 2
    with nki.World.trn2_ultraserver(ranks=ranks, lnc=lnc, host="inprocess") as world:
        timed("trace and passes", lambda: world.compile(kernel, given, *rest))
        clock = Clock(time.perf_counter)
        with clock.watching((CoreGroup, "_link", "link"), (Scheduler, "run", "run")):
            outs = timed("first launch", lambda: world.run(kernel, given, *rest))
        found.update(clock.costs)
        timed("next launch", lambda: world.run(kernel, given, *rest))
        report = timed("dry run", lambda: world.dry_run(kernel, given, *rest))
    gathered = sorted(x.tobytes() for x in xs)
    for out in outs:
        assert sorted(block.tobytes() for block in out.reshape(ranks, -1)) == gathered
    return {**found, "steps": sum(report.instructions)}


def table(name: str, kernel_of: Callable[[int], tuple[Any, tuple[Any, ...]]]) -> None:
    turns = [{n: measure(kernel_of, n) for n in SIZES} for _ in range(TURNS)]
    least = {n: {key: min(t[n][key] for t in turns) for key in turns[0][n]} for n in SIZES}
    rows = []
    for n, row in least.items():
        cells = (f"{1e3 * row[c]:.0f} ms" for c in COLUMNS)
        each = f"{1e6 * row['first launch'] / row['steps']:.1f} us"
        rows.append((n, f"{row['steps']:,.0f}", *cells, each))
    last, first = least[SIZES[-1]], least[SIZES[0]]
    ratios = (f"{last[c] / first[c]:.1f} x" for c in ("steps", *COLUMNS))
    rows.append((f"{SIZES[-1]} to {SIZES[0]}", *ratios, ""))
    print(f"\n{name}\n")
    show(("ranks", "steps of all cores", *COLUMNS, "per step"), rows)


def main() -> None:
    table("ring", own)
    if reference := os.environ.get("NKI_REF"):
        compat.install()
        sys.path.insert(0, str(Path(reference) / "nki-library" / "src"))
        table("fine_grained_allgather of nki-library", library)


if __name__ == "__main__":
    main()
