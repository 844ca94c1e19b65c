"""First launches of worlds with an actor for each core: `python -m bench.many_actors [RANKS ...]`.

For each number of ranks (8, 16 and 32 by default) a world comes up, then launches a kernel for the
first and the second time: one whose ranks are alone, a sum over all, and one in which everybody
sends to everybody. Seconds; the results are compared.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import show

WAYS = ("alone", "all_reduce", "all_to_all")


@nki.jit
def exchanged(x, group, way):
    mine = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=mine, src=x)
    if way == "all_reduce":
        ncc.all_reduce([mine], [out], group, nl.add)
    elif way == "all_to_all":
        ncc.all_to_all([mine], [out], group, 0)
    else:
        nisa.dma_copy(dst=out, src=mine)
    return out


def measured(ranks: int, way: str) -> tuple[object, ...]:
    """Seconds until the actors are up, of the first launch and of the second, as a row."""
    x = np.arange(4 * ranks, dtype=np.float32).reshape(ranks, 4)
    group = ncc.ReplicaGroup([list(range(ranks))])
    times = [time.perf_counter()]
    with nki.World(ranks=ranks, lnc=1, cores_per_actor=1) as world:
        times.append(time.perf_counter())
        for _ in range(2):
            outs = world.run(exchanged, x, group, way)
            times.append(time.perf_counter())
    for rank, out in enumerate(outs):
        right = {"alone": x, "all_reduce": x * ranks, "all_to_all": np.repeat(x[[rank]], ranks, 0)}
        assert np.array_equal(out, right[way]), (way, rank)
    up, first, second = np.diff(times)
    return ranks, way, f"{up:.1f}", f"{first:.2f}", f"{second:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ranks", type=int, nargs="*", default=[8, 16, 32])
    with nki.World() as world:
        world.start()  # Ray
        sizes = parser.parse_args().ranks
        heads = ("ranks", "", "actors up", "first launch", "second")
        show(heads, (measured(ranks, way) for ranks in sizes for way in WAYS))


if __name__ == "__main__":
    main()
