"""Flash-style causal attention: scores are never stored, the softmax is corrected as it goes.

For a tile of 128 queries the keys come in blocks of 512. Each row keeps its maximum, the sum of its
exponentials and its weighted sum of values so far; when a block raises the maximum, what was summed
before is scaled down. Blocks that lie after the last query of a tile are skipped.

    python examples/spmd/flash_attention.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels import online_softmax


@nki.jit
def flash_attention(q, k, v):
    """softmax(q.T @ k / sqrt(d), causal) @ v for every head.

    Args:
        q, k: (heads, d, sequence), d at most 128: d is contracted, so it lies on partitions.
        v: (heads, sequence, d).

    Returns:
        (heads, sequence, d). Cores take query tiles in turn: later tiles see more keys, and half
        of the sequence each would leave one core idle half of the time.
    """
    heads, d, length = q.shape
    out = nl.ndarray((heads, length, d), dtype=q.dtype, buffer=nl.shared_hbm)
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    for head in range(heads):
        keys = nl.ndarray((d, length), dtype=k.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=keys, src=k[head])
        values = [load(v[head, at : at + w]) for at, w in tiles(0, length, nl.tile_size.pmax)]
        for pair in enumerate(tiles(0, length, nl.tile_size.pmax)):
            i, (q0, width) = pair
            if i % cores == me:
                queries = load(q[head, :, q0 : q0 + width])
                context = attend(queries, keys, values, q0, d**-0.5, q.dtype)
                nisa.dma_copy(dst=out[head, q0 : q0 + width], src=context)
    return out


def load(src):
    """A new SBUF tile with the contents of an HBM view."""
    tile = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def attend(queries, keys, values, q0, scale, dtype):
    """Attention of the queries q0, q0+1, ... to all keys up to their own.

    The loop over blocks of keys is nki_dist/kernels/online_softmax.py: read on there.

    Args:
        queries: (d, at most 128) tile.
        keys: (d, sequence) tile.
        values: (128, d) tiles of the sequence.
        q0: position of the first query, a multiple of 128.
        scale: factor on the scores.
        dtype: of the result.

    Returns:
        (queries, d) tile.
    """
    d, width = queries.shape
    result = nl.ndarray((width, d), dtype=dtype, buffer=nl.sbuf)
    online_softmax.attend(result, queries, keys, values, scale, q0)
    return result


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """q, k (heads, d, sequence) and v (heads, sequence, d)."""
    heads, d, length = (2, 40, 700) if small else (4, 128, 2048)
    shapes = ((heads, d, length), (heads, d, length), (heads, length, d))
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = np.einsum("hdi,hdj->hij", q, k) * q.shape[1] ** -0.5
    scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return weights / weights.sum(axis=2, keepdims=True) @ v


EXAMPLE = Example("flash attention, causal", (flash_attention,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
