"""Worlds of 1 to 256 ranks: time to start, to launch and to close, and memory of all processes.

`python -m bench.worlds` starts each world in a Python process of its own, so that a start includes
starting Ray, and prints a Markdown table. `python -m bench.worlds 64` measures one size. The column
"all" is everything from the first import to the end, with each launch as often as it was measured;
"processor" the processor time of this process and all it started, and "bench" what of "all" isn't
the world's: making arrays, working out what is expected, comparing. Memory is the sum over the same
processes of their proportional set sizes, so what several share, such as the object store, counts
once; it is looked at all the time, in a second run, because looking takes as long as launches.

`python -m bench.worlds --stages 256` tells of one size where both times go, stage by stage, and
what of it is Ray's without anything of this package: as many actors that only import NumPy.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import ray

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import apart, example, show
from bench.stages import Stages, family
from nki_dist.core_actor.ray_session import ensure_ray

BEGAN = time.perf_counter()
SIZES = (1, 4, 16, 64, 256)
COLUMNS = ("ranks", "cores", "actors", "start", "first launch", "launch", "all_reduce 1 MiB",
           "weights 4 MiB", "matmul", "close", "all", "bench", "processor",
           "peak memory")  # fmt: skip
RUNS = 4  # of each launch that is repeated; the first isn't counted in medians


@nki.jit
def scale_and_shift(x):
    """An element-wise kernel: each core works on its half of the rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * rows, rows)
    tile = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[mine, :])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
    nisa.dma_copy(dst=out[mine, :], src=tile)
    return out


@nki.jit
def sum_over_ranks(x, group):
    """An all_reduce between HBM tensors."""
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    half = nl.ds(nl.program_id(0) * rows, rows)
    nisa.dma_copy(dst=mine[half, :], src=x[half, :])
    ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
    return total


@nki.jit
def first_row_of(weights, x):
    """Reads one row of an input that is the same for all ranks."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=weights[0 : x.shape[0], 0 : x.shape[1]])
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out, src=a)
    return out


class PeakMemory:
    """Samples the memory of this process and its descendants until it is told to stop."""

    def __init__(self) -> None:
        self.peak = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The largest sum that was seen, in bytes."""
        self._end.set()
        self._thread.join()
        self._sample()
        return self.peak

    def _look(self) -> None:
        while not self._end.wait(0.25):
            self._sample()

    def _sample(self) -> None:
        self.peak = max(self.peak, sum(map(_proportional_set_size, family(os.getpid()))))


def _proportional_set_size(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # it ended meanwhile
    return 1024 * sum(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")


def run(ranks: int, lnc: int = 2) -> tuple[Stages, int]:
    """Everything that is measured, stage by stage, and how many actors; results are checked."""
    stages = Stages()
    with stages("making arrays", own=True):
        rng = np.random.default_rng(ranks)
        xs = [rng.integers(-9, 9, (64, 4096)).astype(np.float32) for _ in range(ranks)]  # 1 MiB
        weights = rng.integers(-9, 9, (512, 2048)).astype(np.float32)
        small = [x[:32, :64].copy() for x in xs]
    with stages("start of Ray"):
        ensure_ray(None)
    world = nki.World.trn2_ultraserver(ranks=ranks, lnc=lnc)
    with stages("start of actors"):
        actors = len(getattr(world.host, "processes", ()))
    group = ncc.ReplicaGroup([list(range(ranks))])
    outs: list[np.ndarray] = []

    def repeat(name: str, launch: Callable[[], list[np.ndarray]]) -> None:
        with stages(f"first {name}"):
            outs[:] = launch()
        for _ in range(RUNS - 1):
            with stages(name):
                outs[:] = launch()

    with stages("first of all launches"):
        outs[:] = world.run(scale_and_shift, nki.per_rank(xs))
    repeat("launch", lambda: world.run(scale_and_shift, nki.per_rank(xs)))
    with stages("comparing", own=True):
        assert all(np.array_equal(out, 2 * x + 1) for out, x in zip(outs, xs))
    repeat("all_reduce", lambda: world.run(sum_over_ranks, nki.per_rank(xs), group))
    with stages("comparing", own=True):
        total = xs[0].copy()
        for x in xs[1:]:
            total += x  # integers, so exact in any order
        assert all(np.array_equal(out, total) for out in outs)
    repeat("weights", lambda: world.run(first_row_of, weights, nki.per_rank(small)))
    _grid_matmul(world, rng, stages)
    with stages("close"):
        world.close()
    return stages, actors


def _grid_matmul(world: nki.World, rng: np.random.Generator, stages: Stages) -> None:
    """The distributed matmul of the examples, compiled and compared with NumPy's."""
    grid = example("grid_matmul")
    with stages("matmul in float64", own=True):
        case = grid.case(rng, world.ranks)
    with stages("matmul"):
        blocks = world.run(grid.grid_matmul, **case.arguments)
    with stages("comparing", own=True):
        errors = [np.abs(block - wanted).max() for block, wanted in zip(blocks, case.expected)]
        assert len(errors) == world.ranks
        assert max(errors) <= 1e-5 * np.abs(case.expected).max()


def measure(ranks: int, lnc: int = 2) -> dict[str, str]:
    """One row, but for its memory."""
    stages, actors = run(ranks, lnc)
    start = stages.total_of("start of Ray", "start of actors")
    took = [start, stages.total_of("first of all launches")]
    took += [stages.median(name) for name in ("launch", "all_reduce", "weights", "matmul", "close")]
    took += [time.perf_counter() - BEGAN, stages.total(own=True), stages.processor()]
    values = (ranks, ranks * lnc, actors, *(f"{s:.2f} s" for s in took))
    return dict(zip(COLUMNS, map(str, values)))


def watch(ranks: int) -> dict[str, str]:
    """A row's memory."""
    memory = PeakMemory()
    run(ranks)
    return {COLUMNS[-1]: f"{memory.stop() / 2**30:.2f} GiB"}


def tell(ranks: int) -> dict[str, str]:
    """Where the time of a row goes."""
    stages, actors = run(ranks)
    others = time.perf_counter() - BEGAN - stages.total(own=True) - stages.total(own=False)
    print(stages.table())
    print(f"\nimports and what is between: {others:.2f} s; {actors} actors")
    return {"actors": str(actors)}


def plain_ray(actors: int) -> dict[str, str]:
    """What Ray takes with actors that only import NumPy."""
    stages = Stages()
    with stages("Ray, and actors that import NumPy"):
        ray.init(address="local", include_dashboard=False, log_to_driver=False)

        @ray.remote(num_cpus=0)
        class Plain:
            def number(self) -> int:
                return int(np.ones(1).sum())

        plain = [Plain.remote() for _ in range(actors)]
        assert sum(ray.get([actor.number.remote() for actor in plain])) == actors
    print(stages.table())
    return {}


PARTS = {"--one": measure, "--memory": watch, "--tell": tell, "--plain": plain_ray}


def main(arguments: list[str]) -> None:
    if arguments[:1] and arguments[0] in PARTS:
        print(json.dumps(PARTS[arguments[0]](int(arguments[1]))))
        return
    if arguments[:1] == ["--stages"]:
        actors = apart("-m", "bench.worlds", "--tell", arguments[1])["actors"]
        apart("-m", "bench.worlds", "--plain", actors)
        return
    parts = (
        apart("-m", "bench.worlds", "--one", ranks) | apart("-m", "bench.worlds", "--memory", ranks)
        for ranks in arguments or SIZES
    )
    show(COLUMNS, ([row[c] for c in COLUMNS] for row in parts))


if __name__ == "__main__":
    main(sys.argv[1:])
