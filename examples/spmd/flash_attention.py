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

# A score that no row keeps: exp of it is 0, and subtracting a maximum from it doesn't overflow.
MASKED = -1e30


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
        for i, (q0, width) in enumerate(tiles(0, length, nl.tile_size.pmax)):
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
    width, d = queries.shape[1], values[0].shape[1]
    # Minus the maximum, because that is what exp takes as its bias once it is scaled.
    minus_max = nl.ndarray((width, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((width, 1), dtype=nl.float32, buffer=nl.sbuf)
    context = nl.ndarray((width, d), dtype=nl.float32, buffer=nl.sbuf)
    for k0, count in tiles(0, q0 + width, nl.tile_size.gemm_moving_fmax):
        scores = masked_scores(queries, keys[:, k0 : k0 + count], q0 - k0)
        bias, correction = raise_maximum(minus_max, scores, scale, first=k0 == 0)
        weights = nl.ndarray((width, count), dtype=values[0].dtype, buffer=nl.sbuf)
        block_total = nl.ndarray((width, 1), dtype=nl.float32, buffer=nl.sbuf)
        # exp(scale * (score - maximum)): scaling costs nothing here.
        nisa.activation(
            dst=weights,
            op=nl.exp,
            data=scores,
            scale=scale,
            bias=bias,
            reduce_op=nl.add,
            reduce_res=total if k0 == 0 else block_total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        block = weigh_values(weights, values, k0)
        if k0 == 0:
            nisa.tensor_copy(dst=context, src=block)
        else:
            for so_far, more in ((total, block_total), (context, block)):
                nisa.scalar_tensor_tensor(
                    dst=so_far,
                    data=so_far,
                    op0=nl.multiply,
                    operand0=correction,
                    op1=nl.add,
                    operand1=more,
                )
    nisa.reciprocal(dst=total, data=total)
    result = nl.ndarray((width, d), dtype=dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=context, op0=nl.multiply, operand0=total)
    return result


def masked_scores(queries, keys, lead):
    """Scores (queries, keys) before scaling; keys that lie after a query get MASKED.

    Args:
        lead: how many positions the first query lies after the first key.

    Returns:
        A tile in PSUM, or in SBUF if it had to be masked: GpSimd can't reach PSUM.
    """
    width, count = queries.shape[1], keys.shape[1]
    products = nl.ndarray((width, count), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=products, stationary=queries, moving=keys)
    if count - 1 <= lead:
        return products
    scores = nl.ndarray((width, count), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=scores, src=products)
    # All queries see the keys before the first query. From there on a score is kept where
    # query - key = partition - column >= 0, which GpSimd works out from the indices alone.
    triangle = scores[:, lead:count]
    nisa.affine_select(
        dst=triangle,
        pattern=[[-1, count - lead]],
        channel_multiplier=1,
        on_true_tile=triangle,
        on_false_value=MASKED,
        cmp_op=nl.greater_equal,
    )
    return scores


def raise_maximum(minus_max, scores, scale, first):
    """Include a block in the running maximum.

    Returns:
        -scale * maximum, the bias for exp, and exp(scale * (old maximum - maximum)), by which
        earlier sums have to be corrected (None for the first block).
    """
    width = minus_max.shape[0]
    bias = nl.ndarray((width, 1), dtype=nl.float32, buffer=nl.sbuf)
    if first:
        nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=scores, axis=1, negate=True)
        nisa.tensor_scalar(dst=bias, data=minus_max, op0=nl.multiply, operand0=scale)
        return bias, None
    lowered = nl.ndarray((width, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=lowered, op=nl.maximum, data=scores, axis=1, negate=True)
    nisa.tensor_tensor(dst=lowered, data1=lowered, data2=minus_max, op=nl.minimum)
    nisa.tensor_scalar(dst=bias, data=lowered, op0=nl.multiply, operand0=scale)
    correction = nl.ndarray((width, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=correction, op=nl.exp, data=minus_max, scale=-scale, bias=bias)
    nisa.tensor_copy(dst=minus_max, src=lowered)
    return bias, correction


def weigh_values(weights, values, k0):
    """weights @ values of one block, summed in PSUM: a (queries, d) tile."""
    width, count = weights.shape
    pmax = nl.tile_size.pmax
    block = nl.ndarray((width, values[0].shape[1]), dtype=nl.float32, buffer=nl.psum)
    for c0, piece in tiles(0, count, pmax):
        # Keys are contracted now, so they have to move from columns to partitions.
        turned = nl.ndarray((piece, width), dtype=weights.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=weights[:, c0 : c0 + piece], engine=nisa.tensor_engine)
        stationary = nl.ndarray((piece, width), dtype=weights.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=stationary, src=turned)
        tile = values[(k0 + c0) // pmax]
        nisa.nc_matmul(dst=block, stationary=stationary, moving=tile[0:piece, :])
    return block


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
