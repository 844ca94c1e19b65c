"""Vector add: the smallest useful kernel. Load two tiles, add them, store the sum.

python examples/spmd/vector_add.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

# Elements per partition of a tile: 8 KiB of float32, long enough for DMA to run at full rate.
FREE = 2048


@nki.jit
def vector_add(a, b):
    """Sum of two vectors of the same length; each core adds one part."""
    assert a.shape == b.shape and len(a.shape) == 1
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for tile in tiles(*my_share(a.shape[0]), nl.tile_size.pmax * FREE):
        at, count = tile
        # Whole rows of FREE elements fill the partitions; what is left is one short row.
        rows = count // FREE
        if rows:
            add_tile(out, a, b, at, rows, FREE)
        if count % FREE:
            add_tile(out, a, b, at + rows * FREE, 1, count % FREE)
    return out


def add_tile(out, a, b, at, rows, columns):
    """Add `rows * columns` elements from `at`, laid out over `rows` partitions."""
    where, shape = slice(at, at + rows * columns), (rows, columns)
    left = nl.ndarray(shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a[where].reshape(shape))
    nisa.dma_copy(dst=right, src=b[where].reshape(shape))
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    nisa.dma_copy(dst=out[where].reshape(shape), src=left)


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """Two vectors whose length is no multiple of anything."""
    n = 9_001 if small else 3_000_001
    return tuple(rng.standard_normal(n, dtype=np.float32) for _ in range(2))


def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.float64) + b


EXAMPLE = Example("vector add", (vector_add,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
