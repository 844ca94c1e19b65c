"""Tries an image or a cluster: two cores, then four ranks that add up, and where they ran.

Without a cluster (`docker run`) it starts a Ray of its own; as a job it joins the one it runs on.
`NKI_DIST_ACTOR_OPTIONS` says what each simulated core reserves.
"""

from __future__ import annotations

import os
import time

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

RANKS = 4


@nki.jit
def double(x):
    """Twice `x`, (3, 4) float32; each core of a launch does all of it."""
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def total(x):
    """The sum of `x`, (3, 4) float32, over all ranks."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    group = ncc.ReplicaGroup([list(range(RANKS))])
    ncc.all_reduce(srcs=[x], dsts=[out], replica_group=group, op=nl.add)
    return out


def main() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    begun = time.monotonic()
    np.testing.assert_array_equal(double[2](x), 2 * x)
    with nki.World(ranks=RANKS, lnc=1) as world:
        outs = world.run(total, nki.per_rank(lambda rank: x + rank))
    for out in outs:
        np.testing.assert_array_equal(out, RANKS * x + sum(range(RANKS)))
    where = os.environ.get("RAY_ADDRESS", "a Ray of its own")
    print(f"2 cores and {RANKS} ranks are right on {where}, {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
