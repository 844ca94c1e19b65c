"""Column sums by two cores, which meet in shared_hbm at a core_barrier.

python examples/spmd/shared_reduction.py [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def shared_reduction(x):
    """Sums of the columns of a matrix: each core sums half of the rows, then half of the sums."""
    columns = x.shape[1]
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    out = nl.ndarray((1, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    # One row per core. Every core allocates it, and all of them get the same memory.
    partial = nl.ndarray((cores, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=partial[me : me + 1, :], src=sum_of_rows(x, *my_share(x.shape[0])))

    # Without the barrier a core could read the other's row before it is written.
    nisa.core_barrier(data=partial, cores=(0, 1))

    for tile in tiles(*my_share(columns), nl.tile_size.pmax * 16):
        c0, width = tile
        # Row by row onto one partition: the Vector engine reduces along the free dimension only.
        rows = nl.ndarray((1, cores, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=partial[:, c0 : c0 + width])
        total = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=rows.permute((0, 2, 1)), axis=2)
        nisa.dma_copy(dst=out[:, c0 : c0 + width], src=total)
    return out


def sum_of_rows(x, start, stop):
    """Sum of the rows [start, stop) as a (1, columns) tile: a product with a vector of ones."""
    columns, pmax = x.shape[1], nl.tile_size.pmax
    total = nl.ndarray((1, columns), dtype=nl.float32, buffer=nl.sbuf)
    if start == stop:  # fewer rows than cores
        nisa.memset(dst=total, value=0.0)
        return total
    ones = nl.ndarray((pmax, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    for cut in tiles(0, columns, nl.tile_size.gemm_moving_fmax):
        c0, width = cut
        acc = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.psum)
        for block in tiles(start, stop, pmax):
            r0, height = block
            tile = nl.ndarray((height, width), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[r0 : r0 + height, c0 : c0 + width])
            nisa.nc_matmul(dst=acc, stationary=ones[0:height, :], moving=tile)
        nisa.tensor_copy(dst=total[:, c0 : c0 + width], src=acc)
    return total


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """One matrix with an odd number of rows."""
    shape = (301, 700) if small else (4097, 2048)
    return (rng.standard_normal(shape, dtype=np.float32),)


def reference(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64).sum(axis=0, keepdims=True)


EXAMPLE = Example("reduction through shared_hbm", (shared_reduction,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE, lnc=2)
