"""Matrix multiplication with K split over two cores, which swap partial sums with sendrecv.

Each core holds half of K and multiplies it out for the whole result. Then it keeps one half of the
columns and sends the other half of its partial sums away: half the traffic of sending everything.

    python examples/spmd/split_k_matmul.py [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def split_k_matmul(lhsT, rhs):
    """lhsT.T @ rhs; lhsT (K, M), rhs (K, N), K split over the cores."""
    m, n = lhsT.shape[1], rhs.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    assert n % cores == 0, f"N={n} columns can't be shared out evenly between {cores} cores"
    half = n // cores
    for tile in tiles(0, m, nl.tile_size.gemm_stationary_fmax):
        m0, mw = tile
        partial = partial_products(lhsT, rhs, m0, mw)
        mine = partial[:, me * half : (me + 1) * half]
        if cores == 2:
            peer = 1 - me
            received = nl.ndarray((mw, half), dtype=nl.float32, buffer=nl.sbuf)
            nisa.sendrecv(
                src=partial[:, peer * half : (peer + 1) * half],
                dst=received,
                send_to_rank=peer,
                recv_from_rank=peer,
                pipe_id=0,
            )
            nisa.tensor_tensor(dst=mine, data1=mine, data2=received, op=nl.add)
        nisa.dma_copy(dst=out[m0 : m0 + mw, me * half : (me + 1) * half], src=mine)
    return out


def partial_products(lhsT, rhs, m0, mw):
    """This core's share of K, multiplied out for output rows m0...m0+mw: an SBUF tile (mw, N)."""
    n, pmax = rhs.shape[1], nl.tile_size.pmax
    k_tiles = tiles(*my_share(lhsT.shape[0], pmax), pmax)
    assert k_tiles, "K is too short to be split: every core needs one tile of it"
    left = []
    for pair in k_tiles:
        k0, kw = pair
        tile = nl.ndarray((kw, mw), dtype=lhsT.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=lhsT[k0 : k0 + kw, m0 : m0 + mw])
        left.append(tile)
    partial = nl.ndarray((mw, n), dtype=nl.float32, buffer=nl.sbuf)
    for block in tiles(0, n, nl.tile_size.gemm_moving_fmax):
        n0, nw = block
        acc = nl.ndarray((mw, nw), dtype=nl.float32, buffer=nl.psum)
        for i in range(len(k_tiles)):
            k0, kw = k_tiles[i]
            right = nl.ndarray((kw, nw), dtype=rhs.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=right, src=rhs[k0 : k0 + kw, n0 : n0 + nw])
            nisa.nc_matmul(dst=acc, stationary=left[i], moving=right)
        nisa.tensor_copy(dst=partial[:, n0 : n0 + nw], src=acc)
    return partial


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """lhsT (K, M) and rhs (K, N); K is no multiple of 256, so the cores' shares differ."""
    k, m, n = (300, 150, 600) if small else (1920, 512, 1024)
    return (
        rng.standard_normal((k, m), dtype=np.float32),
        rng.standard_normal((k, n), dtype=np.float32),
    )


def reference(lhsT: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return lhsT.T.astype(np.float64) @ rhs.astype(np.float64)


EXAMPLE = Example("split-K matmul", (split_k_matmul,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE, lnc=2)
