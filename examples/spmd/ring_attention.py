"""Ring attention: a sequence too long for one rank; keys and values travel, queries stay.

Every rank has a stretch of the sequence. It attends its queries to the keys it has at hand, while
collective_permute hands keys and values on to the next rank; after as many steps as there are ranks
everybody has seen everything. The softmax is corrected as it goes, as in `flash_attention`, so no
rank ever holds more than two stretches. Attention isn't causal here: each query sees all keys.

    python examples/spmd/ring_attention.py [--ranks 8] [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _tiles import tiles
from _worlds import Case, WorldExample, run
from flash_attention import load

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels import online_softmax


@nki.jit
def ring_attention(q, k, v, ranks):
    """softmax(q.T @ k / sqrt(d)) @ v of this rank's queries and all ranks' keys.

    Args:
        q, k: (d, stretch), d at most 128.
        v: (stretch, d).
        ranks: how many there are.

    Returns:
        (stretch, d). Cores take query tiles in turn.
    """
    d, length = q.shape
    out = nl.ndarray((length, d), dtype=q.dtype, buffer=nl.shared_hbm)
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    work = tiles(0, length, nl.tile_size.pmax)[me::cores]
    queries = [load(q[:, q0 : q0 + width]) for q0, width in work]
    sums = [online_softmax.running_sums(width, d) for _, width in work]
    keys, values = in_two_places(k, me), in_two_places(v, me)
    for step in range(ranks):
        here, there = step % 2, (step + 1) % 2
        if step + 1 < ranks:  # nobody reads `there` any more: the cores meet in a collective
            hand_on(keys[here], keys[there], ranks)
            hand_on(values[here], values[there], ranks)
        else:
            nisa.core_barrier(data=keys[here], cores=(0, 1))
            nisa.core_barrier(data=values[here], cores=(0, 1))
        for at_n in range(len(queries)):
            tile, so_far = queries[at_n], sums[at_n]
            attend(tile, keys[here], values[here], so_far, d**-0.5, first=step == 0)
    for n in range(len(work)):
        (q0, width), (_, total, context) = work[n], sums[n]
        nisa.reciprocal(dst=total, data=total)
        result = nl.ndarray((width, d), dtype=q.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=context, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[q0 : q0 + width], src=result)
    return out


def in_two_places(x, me):
    """A tensor in HBM and room for the next one; core 0 copies."""
    places = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    if me == 0:
        nisa.dma_copy(dst=places[0], src=x)
    return places


def hand_on(src, dst, ranks):
    """Send a tensor to the next rank, receive the one of the rank before."""
    ring = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    ncc.collective_permute(srcs=[src], dsts=[dst], source_target_pairs=ring)


def attend(queries, k, v, sums, scale, first):
    """Include a stretch of keys (d, stretch) and values (stretch, d) in a query tile's sums."""
    for tile in tiles(0, k.shape[1], nl.tile_size.gemm_moving_fmax):
        k0, count = tile
        values = [load(v[k0 + at : k0 + at + w]) for at, w in tiles(0, count, nl.tile_size.pmax)]
        scores = online_softmax.masked_scores(queries, load(k[:, k0 : k0 + count]), lead=None)
        online_softmax.include(sums, scores, values, scale, first=first and k0 == 0)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention of a whole sequence: q, k (d, sequence), v (sequence, d), in float64."""
    scores = q.T.astype(np.float64) @ k * q.shape[0] ** -0.5
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ v


def case(rng: np.random.Generator, ranks: int, small: bool = False) -> Case:
    """A sequence cut into stretches."""
    d, stretch = (40, 150) if small else (128, 1024)
    q, k = (rng.standard_normal((d, ranks * stretch), dtype=np.float32) for _ in range(2))
    v = rng.standard_normal((ranks * stretch, d), dtype=np.float32)
    arguments = {
        "q": nki.per_rank([np.ascontiguousarray(s) for s in np.split(q, ranks, axis=1)]),
        "k": nki.per_rank([np.ascontiguousarray(s) for s in np.split(k, ranks, axis=1)]),
        "v": nki.per_rank(np.split(v, ranks)),
        "ranks": ranks,
    }
    expected = reference(q, k, v).reshape(ranks, stretch, d)
    return Case(f"a sequence of {ranks * stretch}, head of {d}", arguments, expected)


EXAMPLE = WorldExample("ring attention", ring_attention, case)

if __name__ == "__main__":
    run(EXAMPLE)
