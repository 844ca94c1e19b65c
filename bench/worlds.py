"""Worlds of 1 to 256 ranks: time to start, to launch and to close, and memory of all processes.

`python -m bench.worlds` starts each world in a Python process of its own, so that a start includes
starting Ray, and prints a Markdown table. `python -m bench.worlds 64` measures one size. The column
"all" is everything from the first import to the end, with each launch as often as it was measured.
Memory is the sum over this process and all it started of their proportional set sizes, so what
several processes share, such as the object store, counts once; it is looked at all the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import example, median, seconds

BEGAN = time.perf_counter()
SIZES = (1, 4, 16, 64, 256)
COLUMNS = ("ranks", "cores", "actors", "start", "first launch", "launch", "all_reduce 1 MiB",
           "weights 4 MiB", "matmul", "close", "all", "peak memory")  # fmt: skip


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
        self.peak = max(self.peak, sum(map(_proportional_set_size, _family(os.getpid()))))


def _family(root: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    found, queue = [], [root]
    while queue:
        found.append(queue.pop())
        queue += children[found[-1]]
    return found


def _proportional_set_size(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # it ended meanwhile
    return 1024 * sum(int(line.split()[1]) for line in rollup.splitlines() if line[:4] == "Pss:")


def measure(ranks: int, lnc: int = 2) -> dict[str, str]:
    """One row: results are checked as well."""
    memory = PeakMemory()
    rng = np.random.default_rng(ranks)
    xs = [rng.integers(-9, 9, (64, 4096)).astype(np.float32) for _ in range(ranks)]  # 1 MiB each
    world = nki.World.trn2_ultraserver(ranks=ranks, lnc=lnc)
    start = seconds(lambda: world.host)
    outs: list[np.ndarray] = []

    def launch() -> None:
        outs[:] = world.run(scale_and_shift, nki.per_rank(xs))

    first = seconds(launch)
    again = median(launch, 3)
    assert all(np.array_equal(out, 2 * x + 1) for x, out in zip(xs, outs))
    reduce = median(lambda: outs.__setitem__(slice(None), _all_reduce(world, xs)), 3)
    total = np.sum(xs, axis=0)
    assert all(np.array_equal(out, total) for out in outs)
    weights = rng.integers(-9, 9, (512, 2048)).astype(np.float32)
    small = [x[:32, :64].copy() for x in xs]
    shared = median(lambda: world.run(first_row_of, weights, nki.per_rank(small)), 3)
    matmul = seconds(lambda: _grid_matmul(world, rng))
    actors = len(getattr(world.host, "processes", ()))
    close = seconds(world.close)
    peak = memory.stop()
    took = (start, first, again, reduce, shared, matmul, close, time.perf_counter() - BEGAN)
    values = (ranks, ranks * lnc, actors, *(f"{s:.2f} s" for s in took), f"{peak / 2**30:.2f} GiB")
    return dict(zip(COLUMNS, map(str, values)))


def _all_reduce(world: nki.World, xs: list[np.ndarray]) -> list[np.ndarray]:
    group = ncc.ReplicaGroup([list(range(world.ranks))])
    return world.run(sum_over_ranks, nki.per_rank(xs), group)


def _grid_matmul(world: nki.World, rng: np.random.Generator) -> None:
    """The distributed matmul of the examples, compiled and compared with NumPy's."""
    grid = example("grid_matmul")
    case = grid.case(rng, world.ranks)
    blocks = world.run(grid.grid_matmul, **case.arguments)
    errors = [np.abs(block - wanted).max() for block, wanted in zip(blocks, case.expected)]
    assert len(errors) == world.ranks and max(errors) <= 1e-5 * np.abs(case.expected).max()


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(int(arguments[1]))))
        return
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for ranks in map(int, arguments or SIZES):
        command = [sys.executable, "-m", "bench.worlds", "--one", str(ranks)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        print("| " + " | ".join(row[c] for c in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
