"""The gradients of flash attention; layouts and limits are those of the forward pass."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.attention_checks import check_attention, window_of
from nki_dist.kernels.blocks import (
    combine,
    contract,
    load,
    output,
    programs,
    psum,
    require,
    row_sums,
    sbuf,
    tiles,
    turned,
)
from nki_dist.kernels.online_softmax import masked_scores
from nki_dist.launcher.kernel import jit


@jit
def flash_attn_bwd(
    q_ref,
    k_ref,
    v_ref,
    o_ref,
    dy_ref,
    lse_ref,
    seed_ref=None,
    logit_bias_ref=None,
    *,
    use_causal_mask=False,
    sliding_window=-1,
    mixed_precision=False,
    dropout_p=0.0,
    softmax_scale=None,
    sinks=None,
):
    """Gradients of flash attention, which computes the weights anew from `lse`.

    With P = exp(scale * S - lse) and D = sum(dy * o) of each query: dv = P.T @ dy,
    dS = scale * P * (dy @ v.T - D), dq = dS @ k, dk = dS.T @ q.

    Args:
        q_ref, o_ref, dy_ref: (batch, heads, d, queries).
        k_ref, v_ref: (batch, kv heads, d, keys).
        lse_ref: as flash_fwd returns it.
        use_causal_mask, sliding_window, softmax_scale: as given to flash_fwd.
        seed_ref, mixed_precision: accepted, no effect.
        logit_bias_ref, dropout_p, sinks: must be None, 0 and None.

    Returns:
        dq, dk, dv, like q, k and v. Programs take kv heads in turn.
    """
    batch, heads, d, queries = q_ref.shape
    kv_heads = k_ref.shape[1]
    check_attention(q_ref, k_ref, v_ref, v_ref.shape == k_ref.shape, logit_bias_ref, dropout_p)
    require(sinks is None, "attention sinks aren't implemented: pass sinks=None")
    window = window_of(sliding_window, use_causal_mask, queries, k_ref.shape[3])
    lse_shape = (batch, heads, nl.tile_size.pmax, -(-queries // nl.tile_size.pmax))
    require(lse_ref.shape == lse_shape, f"lse is {lse_ref.shape}, not {lse_shape}")
    scale = d**-0.5 if softmax_scale is None else softmax_scale
    dq, dk, dv = (output(t.shape, t.dtype) for t in (q_ref, k_ref, v_ref))
    count, me = programs()
    group = heads // kv_heads
    for item in range(batch * kv_heads):
        if item % count == me:
            b, kv = divmod(item, kv_heads)
            rows = [
                tile
                for h in range(kv * group, (kv + 1) * group)
                for tile in _query_tiles(h, *(t[b, h] for t in (q_ref, o_ref, dy_ref, lse_ref)))
            ]
            k, v, dk_here, dv_here = (t[b, kv] for t in (k_ref, v_ref, dk, dv))
            _backward(rows, k, v, dk_here, dv_here, use_causal_mask, window, scale)
            for row in rows:
                _store_turned(
                    dq[b, row["head"], :, row["q0"] : row["q0"] + row["width"]], row["dq"]
                )
    return dq, dk, dv


def _query_tiles(head, q, o, dy, lse):
    """For each tile of queries of a head: its operands in both layouts, and room for dq."""
    d, queries = q.shape
    found = []
    for i, (q0, width) in enumerate(tiles(0, queries, nl.tile_size.pmax)):
        span = slice(q0, q0 + width)
        q_tile, dy_tile = load(q[:, span]), load(dy[:, span])
        dy_rows = turned(dy_tile)
        minus_d = row_sums(combine(turned(load(o[:, span])), dy_rows, nl.multiply, nl.float32))
        minus_lse = load(lse[0:width, i : i + 1])
        for column in (minus_d, minus_lse):
            nisa.tensor_scalar(dst=column, data=column, op0=nl.multiply, operand0=-1.0)
        dq = sbuf((width, d), nl.float32)
        nisa.memset(dst=dq, value=0.0)
        found.append(
            {
                "head": head,
                "q0": q0,
                "width": width,
                "q": q_tile,
                "q_rows": turned(q_tile),
                "dy": dy_tile,
                "dy_rows": dy_rows,
                "dq": dq,
                "minus_d": minus_d,
                "minus_lse": minus_lse,
            }
        )
    return found


def _backward(rows, k, v, dk, dv, causal, window, scale):
    """dk and dv of one kv head, and this head's part of every row's dq."""
    d, keys = k.shape
    for k0, count in tiles(0, keys, nl.tile_size.pmax):
        k_tile, v_tile = load(k[:, k0 : k0 + count]), load(v[:, k0 : k0 + count])
        k_rows = turned(k_tile)
        sums = psum((count, d)), psum((count, d))
        seen = [row for row in rows if not causal or _sees(row, k0, count, window)]
        for row in seen:
            lead = row["q0"] - k0 if causal else None
            weights, dscores = _weights(row, k_tile, v_tile, lead, window, scale)
            nisa.nc_matmul(dst=sums[0], stationary=dscores, moving=row["q_rows"])
            nisa.nc_matmul(dst=sums[1], stationary=weights, moving=row["dy_rows"])
            part = contract([turned(dscores)], [k_rows])
            nisa.tensor_tensor(dst=row["dq"], data1=row["dq"], data2=part, op=nl.add)
        for out, total in zip((dk, dv), sums, strict=True):
            result = sbuf((count, d), nl.float32)
            if seen:
                nisa.tensor_copy(dst=result, src=total)
            else:  # keys that no query sees
                nisa.memset(dst=result, value=0.0)
            _store_turned(out[:, k0 : k0 + count], result)


def _sees(row, k0, count, window):
    """Whether any of a tile's queries sees any of the keys k0...k0+count, under a causal mask."""
    in_window = window is None or k0 + count > row["q0"] - window + 1
    return in_window and k0 < row["q0"] + row["width"]


def _weights(row, k_tile, v_tile, lead, window, scale):
    """The weights P of a tile of queries and keys, and the gradient of its scores."""
    scores = masked_scores(row["q"], k_tile, lead, window)
    exact, weights = sbuf(scores.shape, nl.float32), sbuf(scores.shape, k_tile.dtype)
    nisa.activation(dst=exact, op=nl.exp, data=scores, scale=scale, bias=row["minus_lse"])
    nisa.tensor_copy(dst=weights, src=exact)
    inner = sbuf(scores.shape, nl.float32)
    dweights = contract([row["dy"]], [v_tile])
    nisa.tensor_scalar(
        dst=inner,
        data=dweights,
        op0=nl.add,
        operand0=row["minus_d"],
        op1=nl.multiply,
        operand1=scale,
    )
    return weights, combine(exact, inner, nl.multiply, k_tile.dtype)


def _store_turned(dst, tile):
    """dst (HBM) = tile.T, rounded first."""
    rounded = sbuf(tile.shape, dst.dtype)
    nisa.tensor_copy(dst=rounded, src=tile)
    nisa.dma_copy(dst=dst, src=turned(rounded))


__all__ = ["flash_attn_bwd"]
