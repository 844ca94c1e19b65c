"""Attention of a tile of queries without storing its scores: the softmax is corrected as it goes.

Keys come in blocks. Each query keeps its maximum, the sum of its exponentials and its weighted sum
of values so far; when a block raises the maximum, what was summed before is scaled down. These are
building blocks: flash_fwd, flash_attn_bwd and the examples are made of them.

All of it runs while a kernel is traced. Tiles are in SBUF unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import (
    activation_sums,
    contract,
    fused,
    psum,
    sbuf,
    tiles,
    turned_tiles,
)

# A score that no row keeps: exp of it is 0, and subtracting a maximum from it doesn't overflow.
MASKED = -1e30


def attend(
    dst: Any,
    queries: Any,
    keys: Any,
    values: list[Any],
    scale: float,
    q0: int | None = None,
    window: int | None = None,
) -> tuple[Any, Any]:
    """dst = softmax(scale * queries.T @ keys) @ values.

    Args:
        dst: (queries, d) tile of any floating dtype.
        queries: (d, at most 128) tile.
        keys: (d, keys) tile.
        values: the values of the keys as (128, d) tiles, the last one may be shorter.
        scale: factor on the scores.
        q0: position of the first query; each query sees the keys up to its own position. None: all.
        window: of the keys it sees, the last so many only; needs q0, and every query a key.

    Returns:
        The sum of exponentials and minus the maximum of the unscaled scores, (queries, 1) float32.
    """
    d, width = queries.shape
    last = keys.shape[1] if q0 is None else min(q0 + width, keys.shape[1])
    # A block begins at a tile of values: the one that holds the first key that anybody sees.
    seen_from = 0 if q0 is None or window is None else max(0, q0 - window + 1)
    start = seen_from - seen_from % nl.tile_size.pmax
    sums = running_sums(width, d)
    for k0, count in tiles(start, last, nl.tile_size.psum_fmax):
        lead = None if q0 is None else q0 - k0
        scores = masked_scores(queries, keys[:, k0 : k0 + count], lead, window)
        include(sums, scores, values[k0 // nl.tile_size.pmax :], scale, first=k0 == start)
    minus_max, total, context = sums
    share = sbuf((width, 1), nl.float32)
    nisa.reciprocal(dst=share, data=total)
    nisa.tensor_scalar(dst=dst, data=context, op0=nl.multiply, operand0=share)
    return total, minus_max


def running_sums(width: int, d: int) -> tuple[Any, Any, Any]:
    """Room for what `include` keeps of each query: float32 tiles that nobody has written yet.

    Returns:
        Minus the maximum of the unscaled scores (queries, 1), because that is what exp takes as its
        bias once it is scaled; the sum of exponentials (queries, 1); the context (queries, d).
    """
    return tuple(sbuf((width, columns), nl.float32) for columns in (1, 1, d))


def include(sums: tuple, scores: Any, values: list[Any], scale: float, first: bool) -> None:
    """Include a block of keys in the sums of a tile of queries.

    Args:
        sums: as `running_sums` gives them.
        scores: (queries, keys of the block) before scaling.
        values: tiles of the block's values, 128 rows each but for the last; further ones don't
            matter.
        first: this is the first block.
    """
    minus_max, total, context = sums
    bias, correction = raise_maximum(minus_max, scores, scale, first)
    weights, block_total = sbuf(scores.shape, values[0].dtype), sbuf(total.shape, nl.float32)
    # exp(scale * (score - maximum)) and its sums: scaling costs nothing here.
    here = total if first else block_total
    activation_sums(weights, here, nl.exp, scores, scale=scale, bias=bias)
    block = weigh_values(weights, values)
    if first:
        nisa.tensor_copy(dst=context, src=block)
    else:
        for so_far, more in ((total, block_total), (context, block)):
            fused(so_far, so_far, correction, nl.add, more)


def masked_scores(queries: Any, keys: Any, lead: int | None, window: int | None = None) -> Any:
    """Scores (queries, keys) before scaling; keys that a query doesn't see get MASKED.

    Args:
        lead: how many positions the first query lies after the first key; None for no mask.
        window: a query sees so many keys up to its own; None for all of them.

    Returns:
        A tile in PSUM, or in SBUF if it had to be masked: GpSimd can't reach PSUM.
    """
    width, count = queries.shape[1], keys.shape[1]
    products = psum((width, count))
    for n0, columns in tiles(0, count, nl.tile_size.gemm_moving_fmax):
        at = slice(n0, n0 + columns)
        nisa.nc_matmul(dst=products[:, at], stationary=queries, moving=keys[:, at])
    ahead = lead is not None and count - 1 > lead
    behind = lead is not None and window is not None and lead + width - 1 >= window
    if not ahead and not behind:
        return products
    assert lead is not None
    scores = sbuf(products.shape, nl.float32)
    nisa.tensor_copy(dst=scores, src=products)
    if ahead:
        # Kept where query - key = lead + partition - column >= 0: the indices alone say it. All
        # queries see the keys before the first query.
        from_here = max(lead, 0)
        _keep(scores[:, from_here:count], lead - from_here, 1)
    if behind:
        assert window is not None
        _keep(scores, window - 1 - lead, -1)  # query - key < window
    return scores


def _keep(scores: Any, offset: int, sign: int) -> None:
    """Mask where offset + sign * (partition - column) is negative."""
    nisa.affine_select(
        dst=scores,
        pattern=[[-sign, scores.shape[1]]],
        offset=offset,
        channel_multiplier=sign,
        on_true_tile=scores,
        on_false_value=MASKED,
        cmp_op=nl.greater_equal,
    )


def raise_maximum(minus_max: Any, scores: Any, scale: float, first: bool) -> tuple[Any, Any]:
    """Include a block in the running maximum.

    Returns:
        -scale * maximum, the bias for exp, and exp(scale * (old maximum - maximum)), by which
        earlier sums have to be corrected (None for the first block).
    """
    bias = sbuf(minus_max.shape, nl.float32)
    if first:
        nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=scores, axis=1, negate=True)
        nisa.tensor_scalar(dst=bias, data=minus_max, op0=nl.multiply, operand0=scale)
        return bias, None
    lowered, correction = (sbuf(minus_max.shape, nl.float32) for _ in range(2))
    nisa.tensor_reduce(dst=lowered, op=nl.maximum, data=scores, axis=1, negate=True)
    nisa.tensor_scalar(
        dst=bias,
        data=lowered,
        op0=nl.minimum,
        operand0=minus_max,
        op1=nl.multiply,
        operand1=scale,
    )
    nisa.activation(dst=correction, op=nl.exp, data=minus_max, scale=-scale, bias=bias)
    nisa.tensor_tensor(dst=minus_max, data1=lowered, data2=minus_max, op=nl.minimum)
    return bias, correction


def weigh_values(weights: Any, values: list[Any]) -> Any:
    """weights @ values, a (queries, d) tile in PSUM.

    Keys are contracted now, so they move from columns to partitions first.
    """
    stationary = turned_tiles(weights)
    moving = values[: len(stationary)]
    if moving[-1].shape[0] != stationary[-1].shape[0]:
        moving = [*moving[:-1], moving[-1][0 : stationary[-1].shape[0], :]]
    return contract(stationary, moving)


def log_sum_exp(dst: Any, total: Any, minus_max: Any, scale: float) -> None:
    """dst = log(total) + scale * maximum of each query."""
    logs = sbuf(total.shape, nl.float32)
    nisa.activation(dst=logs, op=nl.log, data=total)
    fused(dst, minus_max, -scale, nl.add, logs)
