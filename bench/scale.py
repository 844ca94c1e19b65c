"""Thousands of ranks: dry runs with their profiles, 256 to 16,384 ranks of Trn2 UltraServers.

`python -m bench.scale` measures each size in a Python process of its own and prints a Markdown
table; `python -m bench.scale 4096` measures one. Two programs: a layer's skeleton (work of both
cores, a sum over the ranks of an instance, one over instances, a step to the UltraServer's next
instance) and a ring all-gather over the ranks of an instance. "processor" is processor time, which
other programs on the machine hardly change; compiling is included. "replayed" is how many cores
were replayed for the profile of the first, all others being of their classes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import apart, seconds, show

SIZES = (256, 1024, 4096, 16384)
WIDTH, STAGES = 64, 4  # ranks of an instance, instances of an UltraServer
COLUMNS = ("ranks", "cores", "messages", "replayed", "layer", "processor", "simulated",
           "ring", "ring, processor", "memory")  # fmt: skip


@nki.jit
def layer(x, tensor_parallel, data_parallel, pairs):
    partial, total, here, there = (
        nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in "1234"
    )
    half = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * half, half)
    tile = nl.load(x[mine])
    nisa.activation(dst=tile, op=nl.gelu, data=tile)
    nl.store(partial[mine], tile)
    ncc.all_reduce([partial], [total], tensor_parallel, nl.add)
    ncc.all_reduce([total], [here], data_parallel, nl.add)
    ncc.collective_permute([here], [there], pairs)
    return there


@nki.jit
def ring(x, group, ranks):
    """Block r of the result is what rank r had, if it is of the group."""
    a, b = (nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf) for _ in "12")
    nisa.dma_copy(dst=a, src=x)
    cores = nl.num_programs(0)
    out = nl.ndarray((cores, ranks, *x.shape), x.dtype, buffer=nl.shared_hbm)
    for step in range(WIDTH):
        rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)
        nisa.dma_copy(dst=out[nl.program_id(0)].select(0, rank), src=a)
        ncc.collective_permute_implicit([[a]], [[b]], group)
        nisa.tensor_copy(dst=a, src=b)
    return out


def measure(ranks: int) -> dict[str, str]:
    """The cells of one row."""
    world, x = nki.World.trn2_ultraserver(ranks=ranks), nki.TensorSpec((128, 2048), nl.bfloat16)
    grid = np.arange(ranks).reshape(-1, WIDTH)
    rows = ncc.ReplicaGroup(grid.tolist())
    stages = grid.reshape(-1, STAGES, WIDTH)
    pairs = np.stack([stages[:, :-1].ravel(), stages[:, 1:].ravel()], axis=1).tolist()
    found: list[Any] = []

    def run(*arguments: Any) -> tuple[float, float]:
        before = time.process_time()
        took = seconds(lambda: found.append(world.dry_run(*arguments, profile=True)))
        return took, time.process_time() - before

    both = [run(layer, x, rows, ncc.ReplicaGroup(grid.T.tolist()), pairs)]
    both.append(run(ring, nki.TensorSpec((128, 64), nl.bfloat16), rows, ranks))
    report = found[0]
    return {
        "ranks": f"{ranks:,}",
        "cores": f"{2 * ranks:,}",
        "messages": f"{sum(report.messages):,}",
        "replayed": f"{len(report.profile.timeline.distinct):,}",
        "layer": f"{both[0][0]:.2f} s",
        "processor": f"{both[0][1]:.2f} s",
        "simulated": f"{report.profile.total_us:,.1f} us",
        "ring": f"{both[1][0]:.2f} s",
        "ring, processor": f"{both[1][1]:.2f} s",
        "memory": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB",
    }


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--one"]:
        print(json.dumps(measure(int(arguments[1]))))
        return
    rows = (apart("-m", "bench.scale", "--one", ranks) for ranks in arguments or SIZES)
    show(COLUMNS, ([row[c] for c in COLUMNS] for row in rows))


if __name__ == "__main__":
    main(sys.argv[1:])
