"""Where the time of a first launch goes, stage by stage, and how another checkout compares.

    python -m bench.first [--against CHECKOUT] [--turns 5] [--only NAME ...]

Processor time per instruction, minima over all turns: tracing (the kernel's Python and the calls
that record it), the passes, reading its sources, the key of the cache, linking, running. Every
launch compiles and links anew; one before isn't counted, so what depends on the text of a kernel's
functions alone is known, as it is for a second shape.

Kernels are those of this folder and of examples; with `$NKI_REF` (bench/data/README.md), also
nki-library's at real sizes and nki-samples' of Beta 1. With `--against`, both sides run in
processes that take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import nki_dist as nki
from bench.harness import example
from nki_dist.launcher import session
from nki_dist.runtime import group, scheduler

F32 = np.float32
COMPILING = ("tracing", "passes", "sources")
STAGES = (*COMPILING, "key", "linking", "running")
LINKING = ("placed_program", "_bind", "_templates", "_link")  # the last two of older checkouts
Figures = dict[str, dict[str, float]]  # by kernel: seconds by stage, and "instructions"


def kernels() -> Iterator[tuple[str, Callable[[], object]]]:
    """Names and launches."""
    from bench.estimate import SHAPES
    from bench.spine import tile_stream

    tile = np.zeros((128, 512), F32)
    yield "spine's tiles", lambda: nki.simulate(tile_stream)(tile, 600)
    rows = np.zeros((512, 16384), F32)
    for name in ("tiles", "products", "placed", "windows"):
        kernel = nki.simulate(nki.jit(SHAPES[name]))
        yield f"estimate's {name}", lambda kernel=kernel: kernel(rows, 3000)
    square = np.zeros((2048, 2048), F32)
    matmul = nki.simulate(example("matmul").matmul_blocked[1])
    yield "matmul 2048^3, in blocks", lambda: matmul(square, square)
    softmax = nki.simulate(example("softmax").softmax[1])
    yield "softmax 4096x2048", lambda: softmax(np.zeros((4096, 2048), F32))
    attention = example("flash_attention")
    heads = attention.inputs(np.random.default_rng(0))
    yield "flash attention, 2 cores", lambda: nki.simulate(attention.flash_attention[2])(*heads)
    if os.environ.get("NKI_REF"):
        yield from published()


def published() -> Iterator[tuple[str, Callable[[], object]]]:
    """Kernels of nki-library and nki-samples."""
    from nki_dist import compat

    compat.install()
    from bench.accuracy import library, tutorials
    from bench.accuracy.checkouts import from_file

    made = {
        "nki-library attention, 2048 keys": library.attention(
            2, bs=1, s_q=2048, s_kv=2048, d=128, dtype="bf16", causal=True
        ),
        "nki-library mlp, 256 tokens": library.mlp(2, 1024, 1024, seqlen=256),
        "mamba_v2 of Beta 1, 2048 steps": tutorials.mamba(1, "v2", 256, 2048),
    }
    for name, launch in made.items():
        kernel = nki.simulate(launch.kernel[2] if "library" in name else launch.kernel)
        yield name, lambda kernel=kernel, launch=launch: kernel(*launch.args, **launch.kwargs)
    beta1 = __import__("neuronxcc.nki", fromlist=["jit"]).jit
    product = nki.simulate(beta1(from_file("nki-samples/contributed/matmul.py").matmul))
    halves = np.zeros((1024, 1024), np.float16), np.zeros((1024, 2048), np.float16)
    yield "nki-samples matmul (Beta 1)", lambda: product(*halves)


class Clock:
    """Adds up processor time by stage; what a stage calls of itself counts once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside: set[str] = set()

    def watch(self, owner: Any, name: str, stage: str) -> None:
        """Time every call of a function."""
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if stage in self._inside:
                return function(*args, **kwargs)
            self._inside.add(stage)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.process_time() - start
                self.seconds[stage] = self.seconds.get(stage, 0.0) + taken
                self._inside.discard(stage)

        setattr(owner, name, timed)


def measured(turns: int, only: list[str]) -> Figures:
    """Minima over some launches of every kernel, each compiled and linked anew."""
    clock = Clock()
    compiling = sys.modules[session.compile_kernel.__module__]
    for owner, name, stage in (
        (compiling, "trace_core", "tracing"),
        (compiling, "check_core", "passes"),
        (compiling, "check_launch", "passes"),
        (compiling, "note_style", "sources"),
        (session.CompileCache, "fingerprint", "key"),
        *(
            (owner, name, "linking")
            for owner in (group, group.CoreGroup)
            for name in LINKING
            if hasattr(owner, name)
        ),
        (scheduler.Scheduler, "run", "running"),
    ):
        clock.watch(owner, name, stage)
    counts: list[int] = []
    original = session.compile_kernel

    def counted(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        counts.append(sum(map(len, compiled.programs)))
        return compiled

    session.compile_kernel = counted
    found: Figures = {}
    for name, launch in kernels():
        if only and not any(part in name for part in only):
            continue
        for turn in range(turns + 1):
            session.session().cache = session.CompileCache()
            clock.seconds = {}
            with contextlib.redirect_stdout(io.StringIO()):  # kernels of nki-library print
                launch()
            seen = {**clock.seconds, "instructions": float(counts[-1])}
            if turn:
                found[name] = least(found.get(name, seen), seen)
    return found


def least(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    return {stage: min(a[stage], b[stage]) for stage in b}


def elsewhere(checkout: Path, turns: int, only: list[str]) -> Figures:
    """The figures of another checkout's package, by the launches of this file."""
    from bench.harness import apart  # the other checkout runs this file, and may not have it

    environment = {**os.environ, "PYTHONPATH": str(checkout), "OPENBLAS_NUM_THREADS": "1"}
    words = ("--figures", "--turns", turns, "--only", *only)
    found: Figures = apart(__file__, *words, env=environment)
    return found


def row(name: str, here: dict[str, float], there: dict[str, float] | None) -> str:
    """A line of the table: microseconds per instruction."""
    count = here["instructions"]

    def us(figures: dict[str, float], stages: tuple[str, ...]) -> float:
        return 1e6 * sum(figures.get(stage, 0.0) for stage in stages) / count

    cells = [name, f"{count:,.0f}", *(f"{us(here, (stage,)):.1f}" for stage in STAGES)]
    if there is not None:
        before, after = us(there, COMPILING), us(here, COMPILING)
        cells += [f"{before:.1f}", f"{after:.1f}", f"{after / before:.2f}"]
        cells.append(f"{us(here, STAGES) / us(there, STAGES):.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="parts of kernels' names")
    parser.add_argument("--figures", action="store_true", help="print seconds as JSON only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.figures:
        with threadpool_limits(1):
            print(json.dumps(measured(options.turns, options.only)))
        return
    sides = [Path(__file__).parents[1]]
    sides += [options.against.resolve()] if options.against else []
    found: list[Figures] = [{} for _ in sides]
    for _ in range(options.turns if options.against else 1):
        for figures, side in zip(found, sides):
            for name, seen in elsewhere(side, 3, options.only).items():
                figures[name] = least(figures.get(name, seen), seen)
    heads = ["kernel", "instructions", *STAGES]
    heads += ["compiling there", "here", "ratio", "ratio of all"] if options.against else []
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, here in found[0].items():
        print(row(name, here, found[1][name] if options.against else None))


if __name__ == "__main__":
    main()
