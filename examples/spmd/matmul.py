"""Matrix multiplication in three steps of optimisation. All three compute the same bits.

1. `matmul_basic`: every multiplication loads both operands.
2. `matmul_hoisted`: a column of lhsT tiles is loaded once per output row and stays in SBUF.
3. `matmul_blocked`: both operands are read from HBM once, with few and large DMA transfers.

The left operand comes transposed, (K, M): the Tensor engine contracts over partitions, so K must be
dimension 0 of both operands.

    python examples/spmd/matmul.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


def load(src):
    """A new SBUF tile with the contents of an HBM view."""
    tile = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def store(dst, psum_tile):
    """Bring a finished PSUM tile to HBM; DMA can't read PSUM, so it goes through SBUF."""
    tile = nl.ndarray(psum_tile.shape, dtype=dst.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum_tile)
    nisa.dma_copy(dst=dst, src=tile)


@nki.jit
def matmul_basic(lhsT, rhs):
    """lhsT.T @ rhs: one output tile after the other, K innermost.

    lhsT is read N/512 times and rhs M/128 times; the DMA queues are the bottleneck.
    """
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for cut in tiles(*my_share(m, nl.tile_size.pmax), nl.tile_size.gemm_stationary_fmax):
        m0, mw = cut
        for block in tiles(0, n, nl.tile_size.gemm_moving_fmax):
            n0, nw = block
            acc = nl.ndarray((mw, nw), dtype=nl.float32, buffer=nl.psum)
            for tile in tiles(0, k, nl.tile_size.pmax):
                k0, kw = tile
                left = load(lhsT[k0 : k0 + kw, m0 : m0 + mw])
                right = load(rhs[k0 : k0 + kw, n0 : n0 + nw])
                # The first matmul into a PSUM tile replaces its contents, later ones add.
                nisa.nc_matmul(dst=acc, stationary=left, moving=right)
            store(out[m0 : m0 + mw, n0 : n0 + nw], acc)
    return out


@nki.jit
def matmul_hoisted(lhsT, rhs):
    """lhsT.T @ rhs with the lhsT tiles of an output row loaded once; only rhs is read again."""
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for block in tiles(*my_share(m, nl.tile_size.pmax), nl.tile_size.gemm_stationary_fmax):
        m0, mw = block
        left = [load(lhsT[k0 : k0 + kw, m0 : m0 + mw]) for k0, kw in tiles(0, k, nl.tile_size.pmax)]
        for tile in tiles(0, n, nl.tile_size.gemm_moving_fmax):
            n0, nw = tile
            acc = nl.ndarray((mw, nw), dtype=nl.float32, buffer=nl.psum)
            for pair in enumerate(tiles(0, k, nl.tile_size.pmax)):
                i, (k0, kw) = pair
                right = load(rhs[k0 : k0 + kw, n0 : n0 + nw])
                nisa.nc_matmul(dst=acc, stationary=left[i], moving=right)
            store(out[m0 : m0 + mw, n0 : n0 + nw], acc)
    return out


@nki.jit
def matmul_blocked(lhsT, rhs):
    """lhsT.T @ rhs with all of K in SBUF for a block of rows and a block of columns.

    One DMA brings 128 rows of K over the whole width of a block, a megabyte for 2048 columns of
    float32: its fixed cost of about 2 us disappears behind the transfer.
    """
    (k, m), n = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m, n), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    columns = nl.tile_size.gemm_moving_fmax
    k_tiles = tiles(0, k, nl.tile_size.pmax)
    for cut in tiles(*my_share(m, nl.tile_size.pmax), row_block(lhsT, columns)):
        m0, mb = cut
        left = [load(lhsT[k0 : k0 + kw, m0 : m0 + mb]) for k0, kw in k_tiles]
        for block in tiles(0, n, columns):
            n0, nw = block
            right = [load(rhs[k0 : k0 + kw, n0 : n0 + nw]) for k0, kw in k_tiles]
            for tile in tiles(0, mb, nl.tile_size.gemm_stationary_fmax):
                r0, rw = tile
                acc = nl.ndarray((rw, nw), dtype=nl.float32, buffer=nl.psum)
                for i in range(len(k_tiles)):
                    nisa.nc_matmul(dst=acc, stationary=left[i][:, r0 : r0 + rw], moving=right[i])
                store(out[m0 + r0 : m0 + r0 + rw, n0 : n0 + nw], acc)
    return out


def row_block(lhsT, columns):
    """How many output rows fit into SBUF next to two blocks of rhs and two output tiles.

    Two of each, so that the next block is loaded while this one is multiplied.
    """
    size = 4 if lhsT.dtype == nl.float32 else 2
    k_tiles = -(-lhsT.shape[0] // nl.tile_size.pmax)
    free = nl.tile_size.sbuf_fmax_bytes - 2 * (k_tiles + 1) * columns * size
    pmax = nl.tile_size.pmax
    rows = free // (k_tiles * size * pmax) * pmax
    assert rows >= pmax, f"K={lhsT.shape[0]} is too long to keep in SBUF; split K"
    return rows


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """lhsT (K, M) and rhs (K, N); the small ones end in narrow tiles on every side."""
    k, m, n = (200, 330, 700) if small else (1024, 1024, 2048)
    return (
        rng.standard_normal((k, m), dtype=np.float32),
        rng.standard_normal((k, n), dtype=np.float32),
    )


def reference(lhsT: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return lhsT.T.astype(np.float64) @ rhs.astype(np.float64)


EXAMPLE = Example("tiled matmul", (matmul_basic, matmul_hoisted, matmul_blocked), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
