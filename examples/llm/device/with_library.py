"""Parts of a layer that kernels of nki-library carry out: `shape["library"]` has those by name.

They share their work between the cores in ways of their own, so what goes between them and ours in
HBM is read after a barrier.
"""

from __future__ import annotations

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

from .tiles import PMAX, hbm, load, sbuf


def library_norm(x, weight, shape):
    """Rows after a norm, each core its own: (128, rows, n / 128) tile, neighbours side by side.

    Args:
        x: such a tile, or (rows, n) in HBM.
        weight: (n,) in HBM.
    """
    n = weight.shape[0]
    if len(x.shape) == 2:
        x = x.reshape((1, x.shape[0], n))
    out = sbuf((PMAX, x.shape[1], n // PMAX), x.dtype)
    norm = shape["library"]["rmsnorm_tkg"]
    return norm(x, weight.reshape((1, n)), out, eps=shape["eps"], single_core_forced=True)


def library_qkv(x, w, shape, normed):
    """Queries, keys and values of rows, (tokens, columns) in HBM; both cores have met."""
    tokens, hidden = x.shape
    library = shape["library"]
    found = library["qkv"](
        x.reshape((1, tokens, hidden)),
        w["qkv"],
        output_layout=library["rows"],
        fused_norm_type=library["no_norm"] if normed else library["rms_norm"],
        gamma_norm_weights=None if normed else w["norm1"].reshape((1, hidden)),
        norm_eps=shape["eps"],
        d_head=shape["head_dim"],
        num_q_heads=shape["heads"],
        num_kv_heads=shape["kv_heads"],
    )
    nisa.core_barrier(data=found, cores=(0, 1))
    return found.reshape((tokens, w["qkv"].shape[1]))


def library_attend_prompt(queries, w, cache, shape, own):
    """This rank's part of the output, (tokens, hidden) in HBM.

    Args:
        queries: (heads, d, tokens) in HBM.
        cache: keys and values of at least these tokens; both cores have met.
        own: (first, last) of the tokens that this core copies from there.
    """
    library, (heads, d, tokens) = shape["library"], queries.shape
    kv_heads, dtype = shape["kv_heads"], queries.dtype
    keys, values = hbm((kv_heads, d, tokens), dtype), hbm((kv_heads, tokens, d), dtype)
    for span in own:
        t0, t1 = span
        nisa.dma_copy(dst=keys[:, :, t0:t1], src=cache[0][:, :, t0:t1])
        nisa.dma_copy(dst=values[:, t0:t1, :], src=cache[1][:, t0:t1, :])
    for tensor in (queries, keys, values):
        nisa.core_barrier(data=tensor, cores=(0, 1))
    attend = library["attention_cte"]
    context = attend(queries, keys, values, scale=d**-0.5, tp_q=False, tp_out=True)
    nisa.core_barrier(data=context, cores=(0, 1))
    out = library["output_projection_cte"](context.reshape((1, heads, d, tokens)), w["out"])
    return out.reshape((tokens, w["out"].shape[1]))


def library_attend_token(q, k, v, cache, position, shape, span):
    """Contexts of a token's heads, (d, heads, 1) tile; the heads of keys are its batch.

    Args:
        q, k, v: (d, heads) and (d, kv heads) tiles.
        cache, position, span: as of `attend_token`.
    """
    library, (d, heads) = shape["library"], q.shape
    batch, context = k.shape[1], cache[0].shape[2]
    own = nl.ndarray((batch, 1, 1, d), dtype=v.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(dst=own.reshape((batch, d)).permute((1, 0)), src=v)
    mask = nl.ndarray((1, batch, heads // batch, 1), dtype=nl.uint8, buffer=nl.private_hbm)
    ones, places = sbuf((1, heads), nl.uint8), sbuf((1, batch), nl.float32)
    nisa.memset(dst=ones, value=1)
    nisa.dma_copy(dst=mask.reshape((1, heads)), src=ones)
    at = nl.ndarray((batch, 1), dtype=nl.float32, buffer=nl.private_hbm)
    nisa.tensor_copy(dst=places, src=load(position).broadcast(1, batch))
    nisa.dma_copy(dst=at.reshape((1, batch)), src=places)
    scaled, out = sbuf(q.shape, q.dtype), sbuf(q.shape, q.dtype)
    nisa.tensor_scalar(dst=scaled, data=q, op0=nl.multiply, operand0=d**-0.5)
    memory = library["memory"]()
    memory.open_scope()
    config = library["config"](
        bs=batch,
        q_head=heads // batch,
        s_active=1,
        curr_sprior=span,
        full_sprior=context,
        d_head=d,
        use_pos_id=True,
        qk_in_sb=True,
        out_in_sb=True,
    )
    found = library["attention_tkg"](
        scaled,
        k,
        own,
        cache[0].reshape((batch, 1, d, context)),
        cache[1].reshape((batch, 1, context, d)),
        mask,
        out,
        config,
        memory,
        rope_pos_ids=at,
    )
    return found[0].reshape((d, heads, 1))


def library_project_token(context, w, shape):
    """This rank's part of the output of one token, (1, hidden) in HBM; context (d, heads, 1)."""
    d, heads, _ = context.shape
    place = hbm((d, 1, heads, 1), context.dtype)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=place.reshape((d, heads)), src=context.reshape((d, heads)))
    nisa.core_barrier(data=place, cores=(0, 1))
    return shape["library"]["output_projection_tkg"](place, w["out"])


def library_mlp(x, w, shape, normed):
    """This rank's part of the output, (tokens, hidden) in HBM."""
    tokens, hidden = x.shape
    library = shape["library"]
    found = library["mlp"](
        x.reshape((1, tokens, hidden)),
        w["gate"],
        w["up"],
        w["down"],
        normalization_weights_tensor=None if normed else w["norm2"].reshape((1, hidden)),
        normalization_type=library["no_norm"] if normed else library["rms_norm"],
        activation_fn=library["silu"],
        eps=shape["eps"],
    )
    return found[0].reshape((tokens, hidden))


def library_gates(x, router, shape):
    """As `gates_of`, of at most 128 tokens."""
    assert shape["renormalise"], "the library's others aren't zero where an expert wasn't chosen"
    p, k, tokens = x.shape
    tile, gates = sbuf((p, tokens, k), x.dtype), (tokens, router.shape[1])
    nisa.tensor_copy(dst=tile, src=x.permute((0, 2, 1)))
    found = shape["library"]["router_topk"](
        tile,
        router,
        None,
        nl.ndarray(gates, dtype=nl.float32, buffer=nl.private_hbm),
        sbuf(gates, nl.float32),
        sbuf((tokens, shape["chosen"]), nl.uint32),
        act_fn=shape["library"]["softmax"],
        k=shape["chosen"],
        x_hbm_layout=1,
        x_sb_layout=0,  # neighbours side by side
        norm_topk_prob=True,
        skip_store_expert_index=True,
    )
    return found[2]


@nki.jit
def library_layers_of_token(x, layers, caches, step, shape, span, group=None):
    """Layers on one token, in one launch; as `layer_of_token`.

    Args:
        layers, caches: the weights of each, its keys and values.
    """
    library, half, hidden = shape["library"], shape["head_dim"] // 2, x.shape[1]
    mask, names = mask_of_token(step["position"], shape["heads"], span), {}
    for name in ("qkv", "out", "gate", "up", "down", "norm1", "norm2"):
        names[name] = []
    for w in layers:
        assert w["q_norm"] is None, "the library's layers normalise no heads"
        for name in names:
            weight = w[name]
            if len(weight.shape) == 1:
                weight = weight.reshape((1, hidden))
            names[name].append(weight)
    keys, values = [], []
    for cache in caches:
        keys.append(cache["keys"])
        values.append(cache["values"])
    found = library["transformer_tkg"](
        x.reshape((1, 1, hidden)),
        names["qkv"],
        names["out"],
        names["gate"],
        names["up"],
        names["down"],
        names["norm1"],
        names["norm2"],
        keys,
        values,
        step["angles"][:half, 0:1].reshape((half, 1, 1)),
        step["angles"][:half, 1:2].reshape((half, 1, 1)),
        mask,
        None,
        step["position"],
        len(layers),
        eps=shape["eps"],
        replica_groups=None if group is None else group.groups,
    )
    return found.reshape(x.shape)


def mask_of_token(position, heads, span):
    """(span, 1, heads, 1) uint8 in HBM: 1 at places before the position, and at the last one."""
    n, place = span // PMAX, hbm((span, 1, heads, 1), nl.uint8)
    places, start = sbuf((PMAX, n), nl.float32), sbuf((PMAX, 1), nl.float32)
    before, last = sbuf(places.shape, nl.float32), sbuf(places.shape, nl.float32)
    nisa.iota(dst=places, pattern=[[1, n]], channel_multiplier=n)
    nisa.tensor_copy(dst=start, src=load(position.broadcast(0, PMAX)))
    nisa.tensor_scalar(dst=before, data=places, op0=nl.less, operand0=start)
    nisa.tensor_scalar(dst=last, data=places, op0=nl.equal, operand0=float(span - 1))
    mask = sbuf((PMAX, n, heads), nl.uint8)
    of_heads = before.reshape((PMAX, n, 1)).broadcast(2, heads)
    of_last = last.reshape((PMAX, n, 1)).broadcast(2, heads)
    nisa.tensor_tensor(dst=mask, data1=of_heads, data2=of_last, op=nl.maximum)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=place.reshape((PMAX, n, heads)), src=mask)
    nisa.core_barrier(data=place, cores=(0, 1))
    return place
