"""Dry runs beside full runs: time and memory for 1 to 256 ranks of a Trn2 UltraServer.

`python -m bench.dry_run` measures each world in a Python process of its own and prints a Markdown
table; `python -m bench.dry_run 64` measures one size. The program is the distributed matmul of
`examples/spmd/grid_matmul.py` (all_gather along rows and columns of ranks, then matmuls), followed
by an all_reduce of 1 MiB per rank. Memory is that of all processes together, as in `bench.worlds`;
for the dry run without inputs, for the full one with inputs and results. The first launch of each
compiles; both compile the same. "processor" is the processor time of the dry run, which other
programs on the machine hardly change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

import nki_dist as nki
from bench.harness import example, seconds
from bench.worlds import SIZES, PeakMemory, sum_over_ranks

COLUMNS = ("ranks", "cores", "instructions", "messages", "dry", "processor", "dry memory",
           "full, with start", "full again", "full memory")  # fmt: skip


def spec_of(argument: Any) -> Any:
    """A TensorSpec for each array."""
    if isinstance(argument, nki.PerRank):
        return nki.TensorSpec(argument.values[0].shape, argument.values[0].dtype)
    return argument


def measure(ranks: int, what: str) -> dict[str, str]:
    """The cells of one row that belong to the dry or the full run."""
    module = example("grid_matmul")
    group = [list(range(ranks))]
    case = module.case(np.random.default_rng(ranks), ranks)
    world = nki.World.trn2_ultraserver(ranks=ranks)
    memory = PeakMemory()
    if what == "dry":
        arguments = {name: spec_of(value) for name, value in case.arguments.items()}
        del case  # before anything is looked at: a dry run needs no inputs
        found: list[nki.DryRun] = []

        def dry() -> None:
            found[:] = [
                world.dry_run(module.grid_matmul, **arguments),
                world.dry_run(sum_over_ranks, nki.TensorSpec((64, 4096), np.float32), group),
            ]

        before = time.process_time()
        took = seconds(dry)
        busy = time.process_time() - before
        return {
            "ranks": str(ranks),
            "cores": str(2 * ranks),
            "instructions": f"{sum(sum(r.instructions) for r in found):,}",
            "messages": f"{sum(sum(r.messages) for r in found):,}",
            "dry": f"{took:.2f} s",
            "processor": f"{busy:.2f} s",
            "dry memory": f"{memory.stop() / 2**30:.2f} GiB",
        }
    xs = [np.full((64, 4096), rank, np.float32) for rank in range(ranks)]

    def full() -> None:
        outs = world.run(module.grid_matmul, **case.arguments)
        np.testing.assert_allclose(np.stack(outs), case.expected, rtol=0, atol=1e-2)
        sums = world.run(sum_over_ranks, nki.per_rank(xs), group)
        assert all(np.all(out == ranks * (ranks - 1) / 2) for out in sums)

    first, again = seconds(full), seconds(full)
    world.close()
    return {
        "full, with start": f"{first:.2f} s",
        "full again": f"{again:.2f} s",
        "full memory": f"{memory.stop() / 2**30:.2f} GiB",
    }


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(int(arguments[1]), arguments[2])))
        return
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for ranks in map(int, arguments or SIZES):
        row: dict[str, str] = {}
        for what in ("dry", "full"):
            command = [sys.executable, "-m", "bench.dry_run", "--one", str(ranks), what]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            row.update(json.loads(done.stdout.splitlines()[-1]))
        print("| " + " | ".join(row[c] for c in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
