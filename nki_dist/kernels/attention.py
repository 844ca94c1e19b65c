"""Flash attention, forward and backward: scores are never stored.

Layouts are those of the field's kernels of these names. A launch grid of any shape will do: work is
dealt out in turn over all its programs, whether they are `kernel[2]`'s cores or the (batch, head)
instances of Beta 1 launches.

Not done here: dropout and a bias on the scores, which are refused.
"""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels._blocks import (
    combine,
    contract,
    load,
    load_tiles,
    output,
    programs,
    psum,
    require,
    row_sums,
    sbuf,
    tiles,
    turned,
    turned_tiles,
)
from nki_dist.launcher.kernel import jit

# A score that no row keeps: exp of it is 0, and subtracting a maximum from it doesn't overflow.
MASKED = -1e30


@jit
def flash_fwd(
    q,
    k,
    v,
    seed=None,
    logit_bias=None,
    *,
    softmax_scale=None,
    use_causal_mask=True,
    mixed_precision=True,
    dropout_p=0.0,
    config=None,
):
    """softmax(scale * q.T @ k) @ v for every head, with the log-sum-exp of its scores.

    Args:
        q: (batch, heads, d, queries), d at most 128: it is contracted, so it lies on partitions.
        k: (batch, kv heads, d, keys); heads are a multiple of kv heads.
        v: (batch, kv heads, keys, d).
        softmax_scale: factor on the scores, 1 / sqrt(d) by default.
        use_causal_mask: query i sees keys 0...i only.
        seed, mixed_precision, config: accepted, no effect: sums are always float32, and tiles have
            one size.
        logit_bias, dropout_p: must be None and 0.

    Returns:
        out (batch, heads, queries, d) like q, and lse (batch, heads, 128, queries / 128) in
        float32: row i of tile t is query 128 * t + i.
    """
    batch, heads, d, queries = q.shape
    kv_heads, keys = k.shape[1], k.shape[3]
    _check(q, k, v.shape == (batch, kv_heads, keys, d), v, logit_bias, dropout_p)
    scale = d**-0.5 if softmax_scale is None else softmax_scale
    pmax = nl.tile_size.pmax
    out = output((batch, heads, queries, d), q.dtype)
    lse = output((batch, heads, pmax, -(-queries // pmax)), nl.float32)
    count, me = programs()
    item = 0
    for b in range(batch):
        for h in range(heads):
            kv = h * kv_heads // heads
            of_head = None
            for i, (q0, width) in enumerate(tiles(0, queries, pmax)):
                # Query tiles in turn: later ones see more keys, so halves would be uneven.
                item += 1
                if item % count != me:
                    continue
                if of_head is None:
                    of_head = load(k[b, kv]), load_tiles(v[b, kv])
                last = min(q0 + width, keys) if use_causal_mask else keys
                context, log_sum = _attend(
                    load(q[b, h, :, q0 : q0 + width]),
                    *of_head,
                    last,
                    q0 if use_causal_mask else None,
                    scale,
                )
                result = sbuf(context.shape, q.dtype)
                nisa.tensor_copy(dst=result, src=context)
                nisa.dma_copy(dst=out[b, h, q0 : q0 + width, :], src=result)
                nisa.dma_copy(dst=lse[b, h, :, i : i + 1], src=log_sum)
    return out, lse


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
    mixed_precision=False,
    dropout_p=0.0,
    softmax_scale=None,
):
    """Gradients of flash attention, which computes the weights anew from `lse`.

    With P = exp(scale * S - lse) and D = sum(dy * o) of each query: dv = P.T @ dy,
    dS = scale * P * (dy @ v.T - D), dq = dS @ k, dk = dS.T @ q.

    Args:
        q_ref, o_ref, dy_ref: (batch, heads, d, queries).
        k_ref, v_ref: (batch, kv heads, d, keys).
        lse_ref: as flash_fwd returns it.
        use_causal_mask, softmax_scale: as given to flash_fwd.
        seed_ref, mixed_precision: accepted, no effect.
        logit_bias_ref, dropout_p: must be None and 0.

    Returns:
        dq, dk, dv, like q, k and v. Programs take kv heads in turn.
    """
    batch, heads, d, queries = q_ref.shape
    kv_heads = k_ref.shape[1]
    _check(q_ref, k_ref, v_ref.shape == k_ref.shape, v_ref, logit_bias_ref, dropout_p)
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
            _backward(
                rows, k_ref[b, kv], v_ref[b, kv], dk[b, kv], dv[b, kv], use_causal_mask, scale
            )
            for row in rows:
                _store_turned(
                    dq[b, row["head"], :, row["q0"] : row["q0"] + row["width"]], row["dq"]
                )
    return dq, dk, dv


def _attend(queries, keys, values, last, q0, scale):
    """Attention of a tile of queries to keys 0...last, causal if q0 says where the queries are.

    Returns:
        The (queries, d) context, and the (128, 1) log-sum-exp, zero where there is no query.
    """
    width, d = queries.shape[1], queries.shape[0]
    # Minus the maximum, because that is what exp takes as its bias once it is scaled.
    minus_max, total = sbuf((width, 1), nl.float32), sbuf((width, 1), nl.float32)
    context = sbuf((width, d), nl.float32)
    for k0, count in tiles(0, last, nl.tile_size.gemm_moving_fmax):
        scores = _scores(queries, keys[:, k0 : k0 + count], None if q0 is None else q0 - k0)
        bias, correction = _raise_maximum(minus_max, scores, scale, first=k0 == 0)
        weights, block_total = sbuf((width, count), values[0].dtype), sbuf((width, 1), nl.float32)
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
        first = k0 // nl.tile_size.pmax
        turned_weights = turned_tiles(weights)
        pieces = [values[first + n][0 : tile.shape[0], :] for n, tile in enumerate(turned_weights)]
        block = contract(turned_weights, pieces)
        if k0 == 0:
            nisa.tensor_copy(dst=context, src=block)
        else:
            for so_far, more in ((total, block_total), (context, block)):
                _scale_and_add(so_far, correction, more)
    log_sum = _log_sum(total, minus_max, scale)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=context, data=context, op0=nl.multiply, operand0=total)
    return context, log_sum


def _log_sum(total, minus_max, scale):
    """log(total) + scale * maximum."""
    width = total.shape[0]
    result = sbuf((nl.tile_size.pmax, 1), nl.float32)
    nisa.memset(dst=result, value=0.0)
    here = result[0:width, :]
    nisa.activation(dst=here, op=nl.log, data=total)
    nisa.scalar_tensor_tensor(
        dst=here, data=minus_max, op0=nl.multiply, operand0=-scale, op1=nl.add, operand1=here
    )
    return result


def _scale_and_add(so_far, factor, more):
    """so_far = so_far * factor + more."""
    nisa.scalar_tensor_tensor(
        dst=so_far, data=so_far, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=more
    )


def _scores(queries, keys, lead):
    """Scores (queries, keys) before scaling; keys that lie after a query get MASKED.

    Args:
        lead: how many positions the first query lies after the first key; None for no mask.

    Returns:
        A tile in PSUM, or in SBUF if it had to be masked: GpSimd can't reach PSUM.
    """
    products = contract([queries], [keys])
    count = keys.shape[1]
    if lead is None or count - 1 <= lead:
        return products
    scores = sbuf(products.shape, nl.float32)
    nisa.tensor_copy(dst=scores, src=products)
    # Kept where query - key = lead + partition - column >= 0: the indices alone say it.
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


def _raise_maximum(minus_max, scores, scale, first):
    """Include a block in the running maximum.

    Returns:
        -scale * maximum, the bias for exp, and exp(scale * (old maximum - maximum)), by which
        earlier sums have to be corrected (None for the first block).
    """
    bias, lowered = sbuf(minus_max.shape, nl.float32), sbuf(minus_max.shape, nl.float32)
    nisa.tensor_reduce(dst=lowered, op=nl.maximum, data=scores, axis=1, negate=True)
    if not first:
        nisa.tensor_tensor(dst=lowered, data1=lowered, data2=minus_max, op=nl.minimum)
    nisa.tensor_scalar(dst=bias, data=lowered, op0=nl.multiply, operand0=scale)
    correction = None
    if not first:
        correction = sbuf(minus_max.shape, nl.float32)
        nisa.activation(dst=correction, op=nl.exp, data=minus_max, scale=-scale, bias=bias)
    nisa.tensor_copy(dst=minus_max, src=lowered)
    return bias, correction


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


def _backward(rows, k, v, dk, dv, causal, scale):
    """dk and dv of one kv head, and this head's part of every row's dq."""
    d, keys = k.shape
    for k0, count in tiles(0, keys, nl.tile_size.pmax):
        k_tile, v_tile = load(k[:, k0 : k0 + count]), load(v[:, k0 : k0 + count])
        k_rows = turned(k_tile)
        sums = psum((count, d)), psum((count, d))
        seen = [row for row in rows if not causal or k0 < row["q0"] + row["width"]]
        for row in seen:
            weights, dscores = _weights(row, k_tile, v_tile, row["q0"] - k0, causal, scale)
            nisa.nc_matmul(dst=sums[0], stationary=dscores, moving=row["q_rows"])
            nisa.nc_matmul(dst=sums[1], stationary=weights, moving=row["dy_rows"])
            part = contract([turned(dscores)], [k_rows])
            nisa.tensor_tensor(dst=row["dq"], data1=row["dq"], data2=part, op=nl.add)
        for out, total in zip((dk, dv), sums, strict=True):
            result = sbuf((count, d), nl.float32)
            if seen:
                nisa.tensor_copy(dst=result, src=total)
            else:  # keys after the last query
                nisa.memset(dst=result, value=0.0)
            _store_turned(out[:, k0 : k0 + count], result)


def _weights(row, k_tile, v_tile, lead, causal, scale):
    """The weights P of a tile of queries and keys, and the gradient of its scores."""
    scores = _scores(row["q"], k_tile, lead if causal else None)
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


def _check(q, k, v_fits, v, logit_bias, dropout_p):
    batch, heads, d, _ = q.shape
    require(
        len(k.shape) == 4 and k.shape[0] == batch and k.shape[2] == d and v_fits,
        f"q {q.shape}, k {k.shape} and v {v.shape} don't fit",
    )
    require(heads % k.shape[1] == 0, f"{heads} heads aren't a multiple of {k.shape[1]} kv heads")
    require(d <= nl.tile_size.pmax, f"d={d}; at most {nl.tile_size.pmax}")
    require(logit_bias is None, "a bias on the scores isn't implemented: pass logit_bias=None")
    require(dropout_p == 0, f"dropout isn't implemented: got dropout_p={dropout_p}, allowed 0")


__all__ = ["flash_attn_bwd", "flash_fwd"]
