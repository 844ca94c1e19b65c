"""Grouped-query attention with a cache in HBM, for a prompt and for one token.

Of a prompt, the cores of a rank share the tokens; of one token, they share the contraction with the
weights, the keys of the cache, and the columns of the output.
"""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.decoding import attend_cache, later_than, rotated
from nki_dist.kernels.online_softmax import attend

from .norm import inverse_rms, norm_column, sum_over_partitions, turned_rows
from .tiles import (
    PMAX,
    by_rows,
    by_tiles,
    columns_of,
    hbm,
    load,
    load_column,
    rows_of,
    sbuf,
    share,
    sum_over_cores,
    turned,
)
from .with_library import (
    library_attend_token,
    library_project_token,
    library_qkv,
)


def placed(x, weight, cos, sin, rotation, eps, dtype):
    """Rotary embedding of heads or tokens (d, n), normalised before if there is a weight (d, 1)."""
    if weight is not None:
        squares, normed = sbuf(x.shape, nl.float32), sbuf(x.shape, nl.float32)
        nisa.activation(dst=squares, op=nl.square, data=x)
        nisa.scalar_tensor_tensor(
            dst=normed,
            data=x,
            op0=nl.multiply,
            operand0=weight,
            op1=nl.multiply,
            operand1=inverse_rms(sum_over_partitions(squares), x.shape[0], eps),
        )
        x = normed
    return rotated(x, cos, sin, rotation, dtype)


def queries_of_prompt(x, w, cache, tables, shape, blocks, normed):
    """Writes keys and values into the cache; the queries, (heads, d, tokens) in HBM.

    Args:
        x: (tokens, hidden) in HBM.
        w: weights of the layer: norm1, qkv, q_norm and k_norm or None, out.
        cache: keys (kv heads, d, context), values (kv heads, context, d), written in place.
        tables: cos and sin (d, context), rotation (d, d).
        shape: heads, kv_heads, head_dim, eps; library.
        blocks: (first, last) token of the blocks of this core.
        normed: x is normalised.
    """
    heads, kv_heads, d, eps = shape["heads"], shape["kv_heads"], shape["head_dim"], shape["eps"]
    tokens, dtype = x.shape[0], x.dtype
    keys, values = cache
    qkv, rotation = by_rows(w["qkv"]), load(tables["rotation"])
    norms, columns, rows = norms_of_heads(w), (heads + kv_heads) * d, None
    queries = hbm((heads, d, tokens), dtype)
    if "qkv" in shape["library"]:
        rows = library_qkv(x, w, shape, normed)
    for block in blocks:
        t0, t1 = block
        if rows is None:
            turned_x = turned_rows(x, t0, t1, None if normed else w["norm1"], shape)
            heads_of = columns_of(turned_x, qkv[:, :, :columns], d, nl.float32)
        else:
            heads_of = heads_of_rows(rows[t0:t1, :columns], d)
        cos, sin = load(tables["cos"][:, t0:t1]), load(tables["sin"][:, t0:t1])
        for h in range(heads + kv_heads):
            of_query = h < heads
            norm = norms[0] if of_query else norms[1]
            head = placed(heads_of[:, h, :], norm, cos, sin, rotation, eps, dtype)
            place = queries[h] if of_query else keys[h - heads]
            nisa.dma_copy(dst=place[:, t0:t1], src=head)
        for h in range(kv_heads):
            first, place = columns + h * d, values[h, t0:t1, :]
            if rows is None:
                rows_of(turned_x, qkv[:, :, first : first + d], place, 0, d)
            else:
                nisa.dma_copy(dst=place, src=rows[t0:t1, first : first + d])
    nisa.core_barrier(data=keys, cores=(0, 1))
    nisa.core_barrier(data=values, cores=(0, 1))
    return queries


def heads_of_rows(rows, d):
    """Rows (tokens, heads * d) in HBM as a tile (d, heads, tokens), float32."""
    tokens, count = rows.shape[0], rows.shape[1] // d
    out = sbuf((d, count, tokens), nl.float32)
    for at in range(0, tokens, PMAX):
        end = min(at + PMAX, tokens)
        tile = load(rows[at:end, :])
        for h in range(count):
            head = turned(tile[:, h * d : (h + 1) * d])
            nisa.tensor_copy(dst=out[:, h, at:end], src=head)
    return out


def attend_prompt(queries, w, cache, shape, partial, first, blocks):
    """This rank's part of the output.

    Args:
        queries: as of `queries_of_prompt`.
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


def attention_of_token(x, own, w, cache, step, shape, span):
    """This rank's part of the output of one token, (1, hidden) in HBM.

    Args:
        x: (1, hidden) in HBM.
        own: the same as a tile (P, n).
        step: position (1, 1) int32 and angles (d, 2): cosines and sines at it; rotation.
        span: how many places of the cache are looked at; the position is one of them.
    """
    heads, library = shape["heads"] + 2 * shape["kv_heads"], shape["library"]
    if "qkv" in library:
        flat = library_qkv(x, w, shape, False).reshape((heads, shape["head_dim"]))
        every = sbuf((shape["head_dim"], heads), nl.float32)
        nisa.tensor_copy(dst=every, src=turned(load(flat)))
    else:
        every = heads_of_token(own, w, shape)
    context = attend_token(every, w, cache, step, shape, span, x.dtype)
    if "output_projection_tkg" in library:
        return library_project_token(context, w, shape).reshape(x.shape)
    partial = hbm(x.shape, x.dtype)
    project_token(context, w["out"], partial)
    return partial


def heads_of_token(x, w, shape):
    """Queries, keys and values of a token, (d, heads + 2 * kv heads) float32 tile."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    d, qkv = shape["head_dim"], by_rows(w["qkv"])
    k0, k1 = share(qkv.shape[1], cores, me)
    normed = norm_column(x, w["norm1"], shape)
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
    q = placed(every[:, :heads], q_norm, cos, sin, rotation, eps, dtype)
    cos, sin = angles[:, 0:1].broadcast(1, kv_heads), angles[:, 1:2].broadcast(1, kv_heads)
    k = placed(every[:, heads : heads + kv_heads], k_norm, cos, sin, rotation, eps, dtype)
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
    if "attention_tkg" in shape["library"]:
        return library_attend_token(q, k, v, cache, step["position"], shape, span)
    context, group = sbuf((d, heads, 1), dtype), heads // kv_heads
    mask = later_than(step["position"], group, span)
    for h in range(kv_heads):
        rows = attend_cache(q[:, h * group : (h + 1) * group], keys[h], values[h], mask, d**-0.5)
        nisa.tensor_copy(dst=context[:, h * group : (h + 1) * group, 0], src=turned(rows))
    return context


def project_token(context, weight, partial):
    """This rank's part of the output of one token; cores share its columns."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    n0, n1 = share(partial.shape[1], cores, me)
    rows_of(context, by_tiles(weight, context.shape[0]), partial, n0, n1)
