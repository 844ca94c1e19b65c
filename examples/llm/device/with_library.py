"""A layer of nki-library's kernels, which its caller hands over by name; ours where there is none.

The library's kernels share their work between the cores in ways of their own, so whatever they
leave in HBM is read after a barrier.
"""

from __future__ import annotations

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

from .attention import (
    attend_prompt,
    attend_token,
    heads_of_token,
    norms_of_heads,
    placed,
    project_token,
    queries_of_prompt,
)
from .layer import add_rows, added, blocks_of, load_token, rows_of_core
from .mlp import mlp_of_prompt, mlp_of_token
from .tiles import hbm, load, sbuf, sum_over_ranks, turned


@nki.jit
def library_layer_of_prompt(x, w, keys, values, tables, shape, library, group=None):
    """As `layer_of_prompt`.

    Args:
        library: functions by name, and the options they take.
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    own = rows_of_core(x.shape[0], cores, me)
    blocks = blocks_of(x.shape[0], w, x.dtype, cores, me)
    if "attention_cte" in library:
        partial = library_attention(x, w, (keys, values), tables, shape, library, own)
    else:
        partial = hbm(x.shape, x.dtype)
        cache = (keys, values)
        queries = queries_of_prompt(x, w, cache, tables, shape, blocks, False)
        attend_prompt(queries, w, cache, shape, partial, 0, blocks)
    middle = hbm(x.shape, x.dtype)
    add_rows(middle, x, sum_over_ranks(partial, group), own)
    nisa.core_barrier(data=middle, cores=(0, 1))
    if "mlp" in library:
        partial = library_mlp(middle, w, shape, library)
    else:
        partial = hbm(x.shape, x.dtype)
        mlp_of_prompt(middle, w, shape, partial, 0, blocks, False)
    out = hbm(x.shape, x.dtype)
    add_rows(out, middle, sum_over_ranks(partial, group), own)
    return out


@nki.jit
def library_layer_of_token(x, w, keys, values, step, shape, span, library, group=None):
    """As `layer_of_token`; see `library_layer_of_prompt`."""
    me, hidden = nl.program_id(0), x.shape[1]
    heads, kv_heads, d = shape["heads"], shape["kv_heads"], shape["head_dim"]
    own = load_token(x)
    if "qkv" in library:
        flat = library_qkv(x, w, shape, library)
        every = sbuf((d, heads + 2 * kv_heads), nl.float32)
        loaded = load(flat.reshape((heads + 2 * kv_heads, d)))
        nisa.tensor_copy(dst=every, src=turned(loaded))
    else:
        every = heads_of_token(own, w, shape)
    context = attend_token(every, w, (keys, values), step, shape, span, x.dtype)
    if "output_projection_tkg" in library:
        place = hbm((d, 1, heads, 1), x.dtype)
        if me == 0:
            nisa.dma_copy(dst=place.reshape((d, heads)), src=context.reshape((d, heads)))
        nisa.core_barrier(data=place, cores=(0, 1))
        partial = library["output_projection_tkg"](place, w["out"]).reshape((1, hidden))
    else:
        partial = hbm(x.shape, x.dtype)
        project_token(context, w["out"], partial)
    own = added(own, sum_over_ranks(partial, group))
    if "mlp" in library:
        middle = hbm(x.shape, x.dtype)
        if me == 0:
            nisa.dma_copy(dst=middle.reshape(own.shape), src=own)
        nisa.core_barrier(data=middle, cores=(0, 1))
        partial = library_mlp(middle, w, shape, library)
    else:
        partial = hbm(x.shape, x.dtype)
        mlp_of_token(own, w, shape, partial)
    own = added(own, sum_over_ranks(partial, group))
    out = hbm(x.shape, x.dtype)
    if me == 0:
        nisa.dma_copy(dst=out.reshape(own.shape), src=own)
    return out


def library_qkv(x, w, shape, library):
    """Queries, keys and values of normalised rows, (tokens, columns) in HBM."""
    tokens, hidden = x.shape
    found = library["qkv"](
        x.reshape((1, tokens, hidden)),
        w["qkv"],
        output_layout=library["rows"],
        fused_norm_type=library["rms_norm"],
        gamma_norm_weights=w["norm1"].reshape((1, hidden)),
        norm_eps=shape["eps"],
        d_head=shape["head_dim"],
        num_q_heads=shape["heads"],
        num_kv_heads=shape["kv_heads"],
    )
    nisa.core_barrier(data=found, cores=(0, 1))
    return found.reshape((tokens, w["qkv"].shape[1]))


def library_attention(x, w, cache, tables, shape, library, own):
    """This rank's part of the output, (tokens, hidden) in HBM."""
    heads, kv_heads, d = shape["heads"], shape["kv_heads"], shape["head_dim"]
    tokens, dtype = x.shape[0], x.dtype
    rows, norms = library_qkv(x, w, shape, library), norms_of_heads(w)
    rotation = load(tables["rotation"])
    queries = hbm((heads, d, tokens), dtype)
    keys, values = hbm((kv_heads, d, tokens), dtype), hbm((kv_heads, tokens, d), dtype)
    for span in own:
        t0, t1 = span
        cos, sin = load(tables["cos"][:, t0:t1]), load(tables["sin"][:, t0:t1])
        for h in range(heads + kv_heads):
            of_query = h < heads
            wide = sbuf((d, t1 - t0), nl.float32)
            nisa.tensor_copy(dst=wide, src=turned(load(rows[t0:t1, h * d : (h + 1) * d])))
            norm = norms[0] if of_query else norms[1]
            head = placed(wide, norm, cos, sin, rotation, shape["eps"], dtype)
            if of_query:
                nisa.dma_copy(dst=queries[h, :, t0:t1], src=head)
            else:
                nisa.dma_copy(dst=keys[h - heads, :, t0:t1], src=head)
                nisa.dma_copy(dst=cache[0][h - heads, :, t0:t1], src=head)
        for h in range(kv_heads):
            first = (heads + kv_heads + h) * d
            tile = load(rows[t0:t1, first : first + d])
            nisa.dma_copy(dst=values[h, t0:t1, :], src=tile)
            nisa.dma_copy(dst=cache[1][h, t0:t1, :], src=tile)
    for tensor in (queries, keys, values):
        nisa.core_barrier(data=tensor, cores=(0, 1))
    context = library["attention_cte"](
        queries, keys, values, scale=d**-0.5, tp_q=False, tp_out=True
    )
    nisa.core_barrier(data=context, cores=(0, 1))
    out = library["output_projection_cte"](context.reshape((1, heads, d, tokens)), w["out"])
    return out.reshape(x.shape)


def library_mlp(x, w, shape, library):
    """This rank's part of the output, (tokens, hidden) in HBM."""
    tokens, hidden = x.shape
    found = library["mlp"](
        x.reshape((1, tokens, hidden)),
        w["gate"],
        w["up"],
        w["down"],
        normalization_weights_tensor=w["norm2"].reshape((1, hidden)),
        normalization_type=library["rms_norm"],
        activation_fn=library["silu"],
        eps=shape["eps"],
    )
    return found[0].reshape((tokens, hidden))
