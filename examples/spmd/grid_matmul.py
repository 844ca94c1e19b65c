"""Matrix multiplication on a grid of ranks, with one replica group per row and one per column.

The rank in row i and column j of the grid computes block (i, j) of the product. It starts with a
piece of the left factor's row block i and a piece of the right factor's column block j, and gathers
the rest: from the ranks of its row the former, from those of its column the latter.

    python examples/spmd/grid_matmul.py [--ranks 256] [--lnc 1] [--host inprocess] [--small]

More ranks than an instance of trn2 has (64 of two cores) run on its UltraServer.
"""

from __future__ import annotations

from math import isqrt, lcm

import numpy as np
from _tiles import my_share, tiles
from _worlds import Case, WorldExample, run
from tensor_parallel_mlp import load_rows

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def grid_matmul(lhsT, rhs, rows, columns):
    """This rank's block of lhsT.T @ rhs.

    Args:
        lhsT: (K / columns of the grid, m), this rank's piece of its row's block.
        rhs: (K / rows of the grid, n), this rank's piece of its column's block.
        rows, columns: ReplicaGroups: the ranks of each row, of each column.

    Returns:
        (m, n). Cores share out the columns.
    """
    m, n = lhsT.shape[1], rhs.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    start, stop = my_share(n)
    left = load_rows(gathered(lhsT, rows))
    right = load_rows(gathered(rhs, columns)[:, start:stop])
    for cut in tiles(0, m, nl.tile_size.gemm_stationary_fmax):
        m0, mw = cut
        for block in tiles(0, stop - start, nl.tile_size.gemm_moving_fmax):
            n0, nw = block
            acc = nl.ndarray((mw, nw), dtype=nl.float32, buffer=nl.psum)
            for k in range(len(left)):
                a, b = left[k], right[k]
                moving = b[:, n0 : n0 + nw]
                nisa.nc_matmul(dst=acc, stationary=a[:, m0 : m0 + mw], moving=moving)
            tile = nl.ndarray((mw, nw), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=acc)
            nisa.dma_copy(dst=out[m0 : m0 + mw, start + n0 : start + n0 + nw], src=tile)
    return out


def gathered(piece, group):
    """The pieces of all ranks of the own group, one below the other, in HBM."""
    height, width = piece.shape
    members = len(group.groups[0])
    mine = nl.ndarray(piece.shape, dtype=piece.dtype, buffer=nl.shared_hbm)
    whole = nl.ndarray((members * height, width), dtype=piece.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=mine, src=piece)
    ncc.all_gather(srcs=[mine], dsts=[whole], replica_group=group, collective_dim=0)
    return whole


def grid_of(ranks: int) -> np.ndarray:
    """Ranks as the squarest grid there is, numbered row by row."""
    rows = next(n for n in range(isqrt(ranks), 0, -1) if ranks % n == 0)
    return np.arange(ranks).reshape(rows, -1)


def case(rng: np.random.Generator, ranks: int, small: bool = False) -> Case:
    """Two factors, cut into pieces; K is a multiple of both sides of the grid."""
    grid = grid_of(ranks)
    height, width = grid.shape
    m, n, unit = (30, 70, 11) if small else (128, 512, 128)
    k = lcm(height, width) * unit
    lhsT = rng.standard_normal((k, height * m), dtype=np.float32)
    rhs = rng.standard_normal((k, width * n), dtype=np.float32)
    left = lhsT.reshape(width, k // width, height, m)
    right = rhs.reshape(height, k // height, width, n)
    places = [(i, j) for i in range(height) for j in range(width)]
    arguments = {
        "lhsT": nki.per_rank([np.ascontiguousarray(left[j, :, i]) for i, j in places]),
        "rhs": nki.per_rank([np.ascontiguousarray(right[i, :, j]) for i, j in places]),
        "rows": ncc.ReplicaGroup(grid.tolist()),
        "columns": ncc.ReplicaGroup(grid.T.tolist()),
    }
    product = lhsT.T.astype(np.float64) @ rhs.astype(np.float64)
    expected = product.reshape(height, m, width, n).swapaxes(1, 2).reshape(ranks, m, n)
    what = f"({height * m}, {k}) @ ({k}, {width * n}) on {height} by {width} ranks"
    return Case(what, arguments, expected)


EXAMPLE = WorldExample("matmul on a grid", grid_matmul, case, ranks=16)

if __name__ == "__main__":
    run(EXAMPLE)
