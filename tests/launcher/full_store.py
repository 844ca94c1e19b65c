"""A program for test_full_store: worlds in an object store of 256 MiB. Prints JSON."""

from __future__ import annotations

import json
import os

import numpy as np
import ray

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

MIB = 1 << 20
STORE = 256 * MIB


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    share = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * share, share)
    nisa.dma_copy(dst=out[mine, :], src=x[mine, :])
    return out


def launch(world: nki.World, mib: int) -> str:
    """A launch whose stack has so many MiB: "ok", or the error."""
    x = np.arange(mib * MIB // 8, dtype=np.int32).reshape(-1, 1024)
    try:
        (out,) = world.run(copied, x)
    except nki.errors.NkiError as error:
        return f"{type(error).__name__}: {error}"
    return "ok" if np.array_equal(out, x) else "wrong"


def main() -> None:
    os.environ["NKI_DIST_OBJECT_STORE_BYTES"] = str(STORE)
    found = {}
    with nki.World(lnc=2) as world:
        # Larger than half the store: the old stack has to go before the new one is made.
        found["grows"] = [launch(world, mib) for mib in (40, 100, 160, 230)]
        found["too large"] = launch(world, 300)
        found["less"] = launch(world, 64)
        held = ray.put(np.zeros(100 * MIB, np.uint8))
        mapped = ray.get(held)
        found["beside others"] = launch(world, 200)
        found["less beside others"] = launch(world, 48)
        del held, mapped
        found["alone again"] = launch(world, 200)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
