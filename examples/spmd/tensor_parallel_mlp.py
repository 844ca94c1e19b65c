"""A tensor-parallel MLP: all_gather the tokens, multiply by a share of the weights, reduce_scatter.

Every rank has a share of the tokens and, of the hidden features, a share of both weight matrices:
columns of the first, rows of the second. Gathered, the tokens pass through this share, which gives
a summand of every token's result; reduce_scatter adds the summands up and leaves each rank with its
own tokens. Tokens come transposed, so that neither matmul needs a transposition.

    python examples/spmd/tensor_parallel_mlp.py [--ranks 8] [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _tiles import tiles
from _worlds import Case, WorldExample, everybody, run

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def tensor_parallel_mlp(tokens, w1, w2, group, ranks):
    """silu(x @ w1) @ w2 for this rank's tokens.

    Args:
        tokens: (H, tokens), this rank's, transposed.
        w1: (H, F / ranks), this rank's columns.
        w2: (F / ranks, H), this rank's rows.
        group: all ranks.
        ranks: how many they are.

    Returns:
        (tokens, H), this rank's.
    """
    h, count = tokens.shape
    mine = nl.ndarray((h, count), dtype=tokens.dtype, buffer=nl.shared_hbm)
    everyones = nl.ndarray((ranks, h, count), dtype=tokens.dtype, buffer=nl.shared_hbm)
    summand = nl.ndarray((ranks, count, h), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((count, h), dtype=nl.float32, buffer=nl.shared_hbm)
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    if me == 0:
        nisa.dma_copy(dst=mine, src=tokens)
    ncc.all_gather(srcs=[mine], dsts=[everyones], replica_group=group, collective_dim=0)
    first, second = load_rows(w1), load_rows(w2)
    work = [(r, *tile) for r in range(ranks) for tile in tiles(0, count, nl.tile_size.pmax)]
    for pair in work[me::cores]:
        owner, t0, width = pair
        block = load_rows(everyones[owner, :, t0 : t0 + width])
        result = mlp(block, first, second)
        nisa.dma_copy(dst=summand[owner, t0 : t0 + width], src=result)
    ncc.reduce_scatter(
        srcs=[summand], dsts=[total], replica_group=group, collective_dim=0, op=nl.add
    )
    out = nl.ndarray((count, h), dtype=nl.float32, buffer=nl.shared_hbm)
    if me == 0:
        nisa.dma_copy(dst=out, src=total)
    return out


def load_rows(matrix):
    """A matrix in HBM as SBUF tiles of at most 128 rows."""
    loaded = []
    for block in tiles(0, matrix.shape[0], nl.tile_size.pmax):
        r0, height = block
        tile = nl.ndarray((height, matrix.shape[1]), dtype=matrix.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=matrix[r0 : r0 + height])
        loaded.append(tile)
    return loaded


def mlp(tokens, w1, w2):
    """silu(x @ w1) @ w2 of at most 128 tokens.

    Args:
        tokens: x transposed, (H, tokens), as tiles of 128 rows, like w1 (H, F) and w2 (F, H).

    Returns:
        (tokens, H) tile in float32.
    """
    width, features, h = tokens[0].shape[1], w1[0].shape[1], w2[0].shape[1]
    hidden = []  # (F, tokens) as tiles: silu(w1.T @ x.T)
    for piece in tiles(0, features, nl.tile_size.pmax):
        f0, fw = piece
        acc = nl.ndarray((fw, width), dtype=nl.float32, buffer=nl.psum)
        for k in range(len(w1)):
            weights, block = w1[k], tokens[k]
            nisa.nc_matmul(dst=acc, stationary=weights[:, f0 : f0 + fw], moving=block)
        tile = nl.ndarray((fw, width), dtype=w2[0].dtype, buffer=nl.sbuf)
        nisa.activation(dst=tile, op=nl.silu, data=acc)
        hidden.append(tile)
    result = nl.ndarray((width, h), dtype=nl.float32, buffer=nl.sbuf)
    for cut in tiles(0, h, nl.tile_size.gemm_moving_fmax):
        h0, hw = cut
        acc = nl.ndarray((width, hw), dtype=nl.float32, buffer=nl.psum)
        for n in range(len(hidden)):
            tile, weights = hidden[n], w2[n]
            nisa.nc_matmul(dst=acc, stationary=tile, moving=weights[:, h0 : h0 + hw])
        nisa.tensor_copy(dst=result[:, h0 : h0 + hw], src=acc)
    return result


def reference(x: np.ndarray, w1: np.ndarray, w2: np.ndarray) -> np.ndarray:
    """silu(x @ w1) @ w2 in float64."""
    hidden = x.astype(np.float64) @ w1
    return hidden / (1 + np.exp(-hidden)) @ w2.astype(np.float64)


def case(rng: np.random.Generator, ranks: int, small: bool = False) -> Case:
    """Tokens and weights as a whole, and every rank's share of them."""
    count, h, share = (20, 150, 37) if small else (128, 512, 512)
    x = rng.standard_normal((ranks, count, h), dtype=np.float32)
    w1 = rng.standard_normal((h, ranks * share), dtype=np.float32) / np.float32(h**0.5)
    w2 = rng.standard_normal((ranks * share, h), dtype=np.float32)
    arguments = {
        "tokens": nki.per_rank([np.ascontiguousarray(block.T) for block in x]),
        "w1": nki.per_rank([np.ascontiguousarray(part) for part in np.split(w1, ranks, axis=1)]),
        "w2": nki.per_rank(np.split(w2, ranks)),
        "group": everybody(ranks),
        "ranks": ranks,
    }
    what = f"{ranks * count} tokens of {h}, {ranks * share} hidden features"
    return Case(what, arguments, reference(x, w1, w2))


EXAMPLE = WorldExample("tensor-parallel MLP", tensor_parallel_mlp, case)

if __name__ == "__main__":
    run(EXAMPLE)
