"""Collectives between Ray actors against torch.distributed's gloo with as many processes.

`python -m bench.gloo` prints a Markdown table; `python -m bench.gloo 2 4` measures those numbers of
ranks only. One core per rank, one actor per core. Both sides measure many operations in a row while
the processes are running (ours: in one kernel), in turn, with one thread each for arithmetic, and
check their results. 64 MiB per rank at 8 ranks takes about 10 GiB of memory (an estimate).

The share of memcpy is the rate at which bytes of results appear on all ranks together, divided by
the rate at which as many processes copy 64 MiB each at the same time. "Of the limit" is the time in
which the same processes do what an all-reduce can't do without, in memory of their own and without
waiting for anybody (add their part of as many arrays, copy the rest), divided by ours.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import show

RANKS = (2, 4, 8)
COLUMNS = 1024  # of float32 in a row: 4 KiB
SIZES = {4 << 10: 300, 1 << 20: 40, 64 << 20: 3}  # bytes per rank: operations in a row
RUNS = 3
OPERATIONS = ("all_reduce", "all_gather")
HEADS = ("ranks", "operation", "per rank", "us", "gloo us", "faster", "share of memcpy",
         "of the limit")  # fmt: skip
BLOCK = 32 << 10  # elements
STORE = 7 << 30  # bytes of the object store: 64 MiB per rank gathered on 8 ranks


@nki.jit
def many(x, rows, rounds, group, size, gather):
    """`rounds` collectives in a row; returns the last row of the result and one of rank 0."""
    src = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    copies = size if gather else 1
    dst = nl.ndarray((rows * copies, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((2, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for start in range(0, rows, x.shape[0]):
        nisa.dma_copy(dst=src[start : start + x.shape[0], :], src=tile)
    for _ in nl.dynamic_range(rounds):
        if gather:
            ncc.all_gather([src], [dst], group, 0)
        else:
            ncc.all_reduce([src], [dst], group, nl.add)
    nisa.dma_copy(dst=out[0:1, :], src=dst[0:1, :])
    nisa.dma_copy(dst=out[1:2, :], src=dst[rows * copies - 1 : rows * copies, :])
    return out


class Ours:
    """A world of actors that stays up."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.world = nki.World(ranks=ranks, cores_per_actor=1)
        self.world.start()
        self.group = ncc.ReplicaGroup([list(range(ranks))])

    def seconds(self, operation: str, nbytes: int, rounds: int) -> float:
        """Seconds per operation, of the slowest rank."""
        spans = [self._launch(operation, nbytes, n) for n in (1, 1 + rounds)]
        return (spans[1] - spans[0]) / rounds

    def _launch(self, operation: str, nbytes: int, rounds: int) -> float:
        rows = nbytes // (4 * COLUMNS)
        xs = [np.full((min(rows, 128), COLUMNS), r + 1, np.float32) for r in range(self.ranks)]
        gather = operation == "all_gather"
        arguments = (nki.per_rank(xs), rows, rounds, self.group, self.ranks, gather)
        run = self.world.run(many, *arguments, profile=True)
        whole = self.ranks * (self.ranks + 1) / 2
        for out in run.outputs:
            assert set(out[0]) == {1.0 if gather else whole}
            assert set(out[1]) == {float(self.ranks) if gather else whole}
        return max(report.host_seconds for report in run.reports)

    def close(self) -> None:
        self.world.close()


class Gloo:
    """Processes of torch.distributed that stay up."""

    def __init__(self, ranks: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        port = 29000 + os.getpid() % 1000
        for rank in range(ranks):
            mine, theirs = spawn.Pipe()
            process = spawn.Process(target=_gloo, args=(rank, ranks, port, theirs), daemon=True)
            process.start()
            self.pipes.append(mine)
            self.processes.append(process)

    def seconds(self, operation: str, nbytes: int, rounds: int) -> float:
        """Seconds per operation, of the slowest rank."""
        for pipe in self.pipes:
            pipe.send((operation, nbytes, rounds))
        return max(pipe.recv() for pipe in self.pipes)

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()


def _gloo(rank: int, ranks: int, port: int, pipe: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    while (order := pipe.recv()) is not None:
        pipe.send(_timed(rank, ranks, *order))
    dist.destroy_process_group()


def _timed(rank: int, ranks: int, operation: str, nbytes: int, rounds: int) -> float:
    import torch
    import torch.distributed as dist

    mine = torch.full((nbytes // 4,), float(rank + 1))
    result = torch.zeros(mine.numel() * (ranks if operation == "all_gather" else 1))
    if operation == "memcpy":
        run: Callable[[], Any] = lambda: result.copy_(mine)  # noqa: E731
    elif operation == "all_gather":
        run = lambda: dist.all_gather_into_tensor(result, mine)  # noqa: E731
    elif operation == "limit":
        run = _limit(ranks, mine, result)
    else:
        run = lambda: dist.all_reduce(mine)  # noqa: E731
    run()
    if operation == "all_gather":
        assert result[0] == 1 and result[-1] == ranks
    if operation == "all_reduce":
        assert mine[0] == mine[-1] == ranks * (ranks + 1) / 2
        mine.zero_()  # in place: what follows would be sums of sums
    dist.barrier()
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    return (time.perf_counter() - start) / rounds


def _limit(ranks: int, mine: Any, result: Any) -> Callable[[], Any]:
    """Adds one part of `ranks` arrays, in blocks that stay in the cache, and copies the others."""
    parts, places = mine.numpy().reshape(ranks, -1), result.numpy().reshape(ranks, -1)
    partial = np.empty(BLOCK, np.float32)

    def run() -> None:
        for start in range(0, parts.shape[1], BLOCK):
            block = slice(start, start + BLOCK)
            out = places[0, block]
            total = parts[0, block]
            for n in range(1, ranks):  # as many bytes are read as of other members' arrays
                total = np.add(total, parts[n, block], partial if n < ranks - 1 else out)
        places[1:] = parts[1:]

    return run


def measure(ranks: int) -> Iterator[tuple[object, ...]]:
    """The rows of a number of ranks."""
    gloo, ours = Gloo(ranks), Ours(ranks)
    largest = max(SIZES)
    for nbytes, rounds in SIZES.items():
        for operation in OPERATIONS:
            ours.seconds(operation, nbytes, 1)  # compiles, links and touches memory first
            a, b, copying, limit = [], [], [], []
            for _ in range(RUNS):
                a.append(ours.seconds(operation, nbytes, rounds))
                b.append(gloo.seconds(operation, nbytes, rounds))
                if nbytes == largest:
                    copying.append(gloo.seconds("memcpy", nbytes, 5))
                    limit.append(gloo.seconds("limit", nbytes, 3))
            mine, theirs = statistics.median(a), statistics.median(b)
            share = bound = ""
            if nbytes == largest:
                times = ranks if operation == "all_gather" else 1
                share = f"{times * statistics.median(copying) / mine:.0%}"
                if operation == "all_reduce":
                    bound = f"{statistics.median(limit) / mine:.0%}"
            size = f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"
            times = (f"{1e6 * mine:.0f}", f"{1e6 * theirs:.0f}", f"{theirs / mine:.1f}x")
            yield ranks, operation, size, *times, share, bound
    ours.close()
    gloo.close()


def main(arguments: list[str]) -> None:
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        print("bench.gloo compares with torch.distributed: pip install 'nki_dist[torch]' first")
        return
    os.environ.setdefault("NKI_DIST_OBJECT_STORE_BYTES", str(STORE))
    show(HEADS, (row for ranks in map(int, arguments or RANKS) for row in measure(ranks)))


if __name__ == "__main__":
    main(sys.argv[1:])
