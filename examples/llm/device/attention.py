"""Grouped-query attention with a cache in HBM, for a prompt and for one token.

Of a prompt, the cores of a rank share the tokens; of one token, they share the contraction with the
weights, the keys of the cache, and the columns of the output.
"""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.online_softmax import MASKED, attend

from .norm import inverse_rms, norm_column, sum_over_partitions, turned_rows
from .tiles import (
    BANK,
    PMAX,
    by_rows,
    by_tiles,
    columns_of,
    load,
    load_column,
    psum,
    rows_of,
    sbuf,
    share,
    sum_over_cores,
    turned,
)


def rotated(x, weight, cos, sin, rotation, eps, dtype):
    """Rotary embedding of heads or tokens, normalised before if there is a weight.

    Args:
        x: (d, n) float32 tile, n at most 512.
        weight: (d, 1) tile or None.
        cos, sin: (d, n).
        rotation: (d, d) tile, by which a product gives each element its partner.
    """
    d, n = x.shape
    if weight is not None:
        squares, normed = sbuf((d, n), nl.float32), sbuf((d, n), nl.float32)
        nisa.activation(dst=squares, op=nl.square, data=x)
        nisa.scalar_tensor_tensor(
            dst=normed,
            data=x,
            op0=nl.multiply,
            operand0=weight,
            op1=nl.multiply,
            operand1=inverse_rms(sum_over_partitions(squares), d, eps),
        )
        x = normed
    partner, other = psum((d, n)), sbuf((d, n), nl.float32)
    nisa.nc_matmul(dst=partner, stationary=rotation, moving=x)
    nisa.tensor_tensor(dst=other, data1=partner, data2=sin, op=nl.multiply)
    same, out = sbuf((d, n), nl.float32), sbuf((d, n), dtype)
    nisa.tensor_tensor(dst=same, data1=x, data2=cos, op=nl.multiply)
    nisa.tensor_tensor(dst=out, data1=same, data2=other, op=nl.add)
    return out


def queries_of_prompt(x, w, cache, tables, shape, blocks, normed):
    """Writes keys and values into the cache; this core's queries, (heads, d, tokens) in HBM.

    Args:
        x: (tokens, hidden) in HBM.
        w: weights of the layer: norm1, qkv, q_norm and k_norm or None, out.
        cache: keys (kv heads, d, context), values (kv heads, context, d), written in place.
        tables: cos and sin (d, context), rotation (d, d).
        shape: heads, kv_heads, head_dim, eps.
        blocks: (first, last) token of the blocks of this core.
        normed: x is normalised.
    """
    heads, kv_heads, d, eps = shape["heads"], shape["kv_heads"], shape["head_dim"], shape["eps"]
    tokens, dtype = x.shape[0], x.dtype
    keys, values = cache
    qkv, rotation = by_rows(w["qkv"]), load(tables["rotation"])
    norms = norms_of_heads(w)
    queries = nl.ndarray((heads, d, tokens), dtype=dtype, buffer=nl.private_hbm)
    for block in blocks:
        t0, t1 = block
        turned_x = turned_rows(x, t0, t1, None if normed else w["norm1"], eps)
        cos, sin = load(tables["cos"][:, t0:t1]), load(tables["sin"][:, t0:t1])
        heads_of = columns_of(turned_x, qkv[:, :, : (heads + kv_heads) * d], d, nl.float32)
        for h in range(heads + kv_heads):
            of_query = h < heads
            norm = norms[0] if of_query else norms[1]
            head = rotated(heads_of[:, h, :], norm, cos, sin, rotation, eps, dtype)
            place = queries[h] if of_query else keys[h - heads]
            nisa.dma_copy(dst=place[:, t0:t1], src=head)
        for h in range(kv_heads):
            first = (heads + kv_heads + h) * d
            rows_of(turned_x, qkv[:, :, first : first + d], values[h, t0:t1, :], 0, d)
    nisa.core_barrier(data=keys, cores=(0, 1))
    nisa.core_barrier(data=values, cores=(0, 1))
    return queries


def attend_prompt(queries, w, cache, shape, partial, first, blocks):
    """This rank's part of the output.

    Args:
        queries: of all this core's blocks.
        partial: (tokens of these blocks, hidden) in HBM, for the result.
        first: the token of its first row.
        blocks: of this core.
    """
    heads, kv_heads, d, dtype = shape["heads"], shape["kv_heads"], shape["head_dim"], queries.dtype
    keys, values = cache
    group, out = heads // kv_heads, by_tiles(w["out"], d)
    for block in blocks:
        t0, t1 = block
        context = sbuf((d, heads, t1 - t0), dtype)
        for h in range(heads):
            if h % group == 0:
                of_keys = load(keys[h // group, :, 0:t1])
                of_values = load_rows(values[h // group, 0:t1, :])
            for at in range(t0, t1, PMAX):
                end = min(at + PMAX, t1)
                result = sbuf((end - at, d), dtype)
                attend(result, load(queries[h, :, at:end]), of_keys, of_values, d**-0.5, at)
                nisa.tensor_copy(dst=context[:, h, at - t0 : end - t0], src=turned(result))
        rows_of(context, out, partial[t0 - first : t1 - first, :], 0, partial.shape[1])


def load_rows(view):
    """A matrix in HBM as tiles of 128 rows."""
    tiles = []
    for at in range(0, view.shape[0], PMAX):
        tiles.append(load(view[at : min(at + PMAX, view.shape[0]), :]))
    return tiles


def norms_of_heads(w):
    if w["q_norm"] is None:
        return None, None
    return load_column(w["q_norm"]), load_column(w["k_norm"])


def attention_of_token(x, w, cache, step, shape, partial, span):
    """This rank's part of the output of one token, which stands at a run-time position.

    Args:
        x: (P, n) tile of the token.
        step: position (1, 1) int32 and angles (d, 2): cosines and sines at it; rotation.
        partial: (1, hidden) in HBM.
        span: how many places of the cache are looked at; the position is one of them.
    """
    every = heads_of_token(x, w, shape)
    context = attend_token(every, w, cache, step, shape, span, x.dtype)
    project_token(context, w["out"], partial)


def heads_of_token(x, w, shape):
    """Queries, keys and values of a token, (d, heads + 2 * kv heads) float32 tile."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    d, qkv = shape["head_dim"], by_rows(w["qkv"])
    k0, k1 = share(qkv.shape[1], cores, me)
    normed = norm_column(x, w["norm1"], shape["eps"])
    every = sum_over_cores(columns_of(normed, qkv, d, nl.float32, k0, k1), nl.float32)
    return every.reshape((d, qkv.shape[2] // d))


def attend_token(every, w, cache, step, shape, span, dtype):
    """Puts the token's keys and values into the cache; (d, heads, 1) tile of the contexts."""
    heads, kv_heads, d, eps = shape["heads"], shape["kv_heads"], shape["head_dim"], shape["eps"]
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    keys, values = cache
    angles, rotation = load(step["angles"]), load(step["rotation"])
    q_norm, k_norm = norms_of_heads(w)
    cos, sin = angles[:, 0:1].broadcast(1, heads), angles[:, 1:2].broadcast(1, heads)
    q = rotated(every[:, :heads], q_norm, cos, sin, rotation, eps, dtype)
    cos, sin = angles[:, 0:1].broadcast(1, kv_heads), angles[:, 1:2].broadcast(1, kv_heads)
    k = rotated(every[:, heads : heads + kv_heads], k_norm, cos, sin, rotation, eps, dtype)
    v = sbuf((d, kv_heads), dtype)
    nisa.tensor_copy(dst=v, src=every[:, heads + kv_heads :])
    at = nisa.register_alloc(load(step["position"]))
    for h in range(kv_heads):
        if me == 0:
            nisa.dma_copy(dst=keys[h, :, nl.ds(at, 1)], src=k[:, h : h + 1])
        if me == cores - 1:
            nisa.dma_copy(dst=values[h, nl.ds(at, 1), :], src=v[:, h : h + 1])
    nisa.core_barrier(data=keys, cores=(0, 1))
    nisa.core_barrier(data=values, cores=(0, 1))
    context, group = sbuf((d, heads, 1), dtype), heads // kv_heads
    mask = later_than(step["position"], group, span // cores * me, span // cores)
    for h in range(kv_heads):
        rows = attend_cache(q[:, h * group : (h + 1) * group], keys[h], values[h], mask, me)
        nisa.tensor_copy(dst=context[:, h * group : (h + 1) * group, 0], src=turned(rows))
    return context


def project_token(context, weight, partial):
    """This rank's part of the output of one token; cores share its columns."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    n0, n1 = share(partial.shape[1], cores, me)
    rows_of(context, by_tiles(weight, context.shape[0]), partial, n0, n1)


def later_than(position, rows, first, count):
    """(rows, count) float32: MASKED where place first + column is behind the position."""
    places, mask = sbuf((rows, count), nl.float32), sbuf((rows, count), nl.float32)
    nisa.iota(dst=places, pattern=[[1, count]], offset=first)
    here = sbuf((rows, 1), nl.float32)
    nisa.tensor_copy(dst=here, src=load(position.broadcast(0, rows)))
    nisa.tensor_scalar(
        dst=mask, data=places, op0=nl.greater, operand0=here, op1=nl.multiply, operand1=MASKED
    )
    return mask


def attend_cache(q, keys, values, mask, me):
    """softmax(q.T @ keys / sqrt(d) + mask) @ values: (heads, d) tile.

    Args:
        q: (d, heads) tile.
        keys, values: of one head in HBM.
        mask: (heads, places) of this core's share of the places, a multiple of 128.
    """
    d, heads = q.shape
    count = mask.shape[1]
    s0, per, scale = count * me, count // PMAX, d**-0.5
    k = load(keys[:, s0 : s0 + count])
    v = load(values[s0 : s0 + count, :].reshape((PMAX, per, d)))
    scores = sbuf((heads, count), nl.float32)
    for c0 in range(0, count, BANK):
        c1 = min(c0 + BANK, count)
        products = psum((heads, c1 - c0))
        nisa.nc_matmul(dst=products, stationary=q, moving=k[:, c0:c1])
        nisa.tensor_tensor(dst=scores[:, c0:c1], data1=products, data2=mask[:, c0:c1], op=nl.add)
    # of this core: the largest score, the sum of exponentials, the context
    found = sbuf((heads, d + 2), nl.float32)
    largest, total, context = found[:, 0:1], found[:, 1:2], found[:, 2:]
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=scores, axis=1)
    bias, weights = sbuf((heads, 1), nl.float32), sbuf((heads, count), values.dtype)
    nisa.tensor_scalar(dst=bias, data=largest, op0=nl.multiply, operand0=-scale)
    nisa.activation(
        dst=weights,
        op=nl.exp,
        data=scores,
        scale=scale,
        bias=bias,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    split, acc = weights.reshape((heads, PMAX, per)), psum((heads, d))
    for j in range(per):
        nisa.nc_matmul(dst=acc, stationary=turned(split[:, :, j]), moving=v[:, j, :])
    nisa.tensor_copy(dst=context, src=acc)
    found = merged(found, scale)
    share_of, out = sbuf((heads, 1), nl.float32), sbuf((heads, d), values.dtype)
    nisa.reciprocal(dst=share_of, data=found[:, 1:2])
    nisa.tensor_scalar(dst=out, data=found[:, 2:], op0=nl.multiply, operand0=share_of)
    return out


def merged(mine, scale):
    """Both cores' largest scores, sums and contexts as those of all places."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    if cores == 1:
        return mine
    other, total = sbuf(mine.shape, nl.float32), sbuf(mine.shape, nl.float32)
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=1)
    largest, bias = sbuf((mine.shape[0], 1), nl.float32), sbuf((mine.shape[0], 1), nl.float32)
    nisa.tensor_tensor(dst=largest, data1=mine[:, 0:1], data2=other[:, 0:1], op=nl.maximum)
    nisa.tensor_scalar(dst=bias, data=largest, op0=nl.multiply, operand0=-scale)
    first, second = (mine, other) if me == 0 else (other, mine)
    weight = sbuf((mine.shape[0], 2), nl.float32)
    nisa.activation(dst=weight[:, 0:1], op=nl.exp, data=first[:, 0:1], scale=scale, bias=bias)
    nisa.activation(dst=weight[:, 1:2], op=nl.exp, data=second[:, 0:1], scale=scale, bias=bias)
    nisa.tensor_scalar(dst=total, data=first, op0=nl.multiply, operand0=weight[:, 0:1])
    nisa.scalar_tensor_tensor(
        dst=total,
        data=second,
        op0=nl.multiply,
        operand0=weight[:, 1:2],
        op1=nl.add,
        operand1=total,
    )
    return total
