"""2-D transpose on the Tensor engine, 128 x 128 elements at a time.

python examples/spmd/transpose2d.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

# Output columns assembled before they are stored: rows of 2 KiB are what DMA likes.
WIDTH = 512


@nki.jit
def transpose2d(x):
    """x.T; each core makes a part of the output's rows."""
    rows, columns = x.shape
    pmax = nl.tile_size.pmax
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for part in tiles(*my_share(columns, pmax), pmax):
        c0, width = part
        for cut in tiles(0, rows, WIDTH):
            r0, height = cut
            strip = nl.ndarray((width, height), dtype=x.dtype, buffer=nl.sbuf)
            for tile in tiles(0, height, pmax):
                s0, piece = tile
                at = r0 + s0
                block = nl.ndarray((piece, width), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=block, src=x[at : at + piece, c0 : c0 + width])
                # The Tensor engine writes to PSUM only, and transposes bit by bit: NaN stay NaN.
                turned = nl.ndarray((width, piece), dtype=x.dtype, buffer=nl.psum)
                nisa.nc_transpose(dst=turned, data=block, engine=nisa.tensor_engine)
                nisa.tensor_copy(dst=strip[:, s0 : s0 + piece], src=turned)
            nisa.dma_copy(dst=out[c0 : c0 + width, r0 : r0 + height], src=strip)
    return out


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """One matrix, not square."""
    shape = (333, 170) if small else (2048, 1024)
    return (rng.standard_normal(shape, dtype=np.float32),)


def reference(x: np.ndarray) -> np.ndarray:
    return x.T.astype(np.float64)


EXAMPLE = Example("2-D transpose", (transpose2d,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
