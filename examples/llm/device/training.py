"""Forward and backward passes of a layer and of the loss, and AdamW.

Made of `nki_dist.kernels`. Rows are tokens; what attention and the MLP work on lies turned, as they
contract it: (columns, tokens). The cores of a rank meet after each part.
"""

from __future__ import annotations

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels

from .attention import rotated
from .layer import add_rows, reduced, rows_of_core
from .tiles import PMAX, by_rows, hbm, load, sbuf, share, turned

CAUSAL = kernels.FlashConfig(should_transpose_v=True)  # v lies as k does
COLUMNS = 512  # of a tile that elementwise parts work on


def meet(tensors):
    """Both cores have written these, before either reads them."""
    for tensor in tensors:
        nisa.core_barrier(data=tensor, cores=(0, 1))
    return tensors


def product(lhs, rhs, turn_lhs=False, turn_rhs=False):
    return meet((kernels.matmul(lhs, rhs, turn_lhs, turn_rhs),))[0]


def summed(x, more, group):
    """x + the sum over ranks of more."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    out = hbm(x.shape, x.dtype)
    add_rows(out, x, reduced(more, group, 1), rows_of_core(x.shape[0], cores, me))
    return meet((out,))[0]


def plus(x, more):
    """x + more."""
    return summed(x, more, None)


def my_tiles(shape):
    """(row, rows, column, columns) of the tiles of a matrix that a core works on."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    first, last = share(shape[1], cores, me)
    found = []
    for r0 in range(0, shape[0], PMAX):
        for c0 in range(first, last, COLUMNS):
            found.append((r0, min(PMAX, shape[0] - r0), c0, min(COLUMNS, last - c0)))
    return found


def turned_heads(x, cos, sin, rotation, rotates):
    """Rotary embedding of heads (heads, d, tokens) in HBM, of the first `rotates` of them."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    out = hbm(x.shape, x.dtype)
    for h in range(me, x.shape[0], cores):
        head = load(x[h])
        if h < rotates:
            head = rotated(head, None, cos, sin, rotation, 0.0, x.dtype)
        nisa.dma_copy(dst=out[h], src=head)
    return meet((out,))[0]


@nki.jit
def attention_forward(x, w, tables, shape, group):
    """x + attention, and what its backward pass needs.

    Args:
        x: (tokens, hidden), at most 512 tokens.
        w: norm1, qkv, out: this rank's.
        tables: cos, sin (d, tokens), rotation (d, d).
        shape: heads, kv_heads, head_dim, eps.
    """
    heads, kv, d = shape["heads"], shape["kv_heads"], shape["head_dim"]
    tokens = x.shape[0]
    normed = meet((kernels.rms_norm(x, w["norm1"], shape["eps"]),))[0]
    flat = product(w["qkv"], normed, True, True).reshape((heads + 2 * kv, d, tokens))
    cos, sin, rotation = load(tables["cos"]), load(tables["sin"]), load(tables["rotation"])
    every = turned_heads(flat, cos, sin, rotation, heads + kv).reshape((1, -1, d, tokens))
    q, k, v = every[:, :heads], every[:, heads : heads + kv], every[:, heads + kv :]
    out, lse = meet(kernels.flash_fwd(q, k, v, config=CAUSAL))
    context = hbm((heads, d, tokens), x.dtype)
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    for h in range(me, heads, cores):
        for t0 in range(0, tokens, PMAX):
            t1 = min(t0 + PMAX, tokens)
            nisa.dma_copy(dst=context[h, :, t0:t1], src=turned(load(out[0, h, t0:t1, :])))
    meet((context,))
    partial = product(context.reshape((heads * d, tokens)), w["out"], True)
    return summed(x, partial, group), normed, every, context, lse


@nki.jit
def attention_backward(x, dy, w, saved, tables, shape, group):
    """The gradients of x and of the weights; `saved` is what `attention_forward` returned."""
    heads, kv, d = shape["heads"], shape["kv_heads"], shape["head_dim"]
    normed, every, context, lse = saved
    tokens, flat = x.shape[0], (heads * d, x.shape[0])
    d_out = product(context.reshape(flat), dy)
    d_context = product(w["out"], dy, False, True).reshape((1, heads, d, tokens))
    of_heads = meet(
        kernels.flash_attn_bwd(
            every[:, :heads],
            every[:, heads : heads + kv],
            every[:, heads + kv :],
            context.reshape((1, heads, d, tokens)),
            d_context,
            lse,
            use_causal_mask=True,
        )
    )
    cos, rotation = load(tables["cos"]), load(tables["rotation"])
    back = sbuf(cos.shape, nl.float32)  # a turn the other way
    nisa.tensor_scalar(dst=back, data=load(tables["sin"]), op0=nl.multiply, operand0=-1.0)
    d_normed, gradients = None, []
    for n in range(3):
        count, rotates = (heads, kv, kv)[n], (heads, kv, 0)[n]
        first = (0, heads, heads + kv)[n] * d
        of_part = of_heads[n].reshape((count, d, tokens))
        of_part = turned_heads(of_part, cos, back, rotation, rotates).reshape((count * d, tokens))
        weight = w["qkv"][:, first : first + count * d]
        gradients.append(product(normed, of_part, True, True))
        more = product(of_part, weight, True, True)
        d_normed = more if d_normed is None else plus(d_normed, more)
    dx, d_norm = meet(
        kernels.rms_norm_backward(x, w["norm1"], reduced(d_normed, group, 1), shape["eps"])
    )
    d_qkv = hbm(w["qkv"].shape, x.dtype)
    if nl.program_id(0) == 0:
        at = 0
        for part in gradients:
            nisa.dma_copy(dst=d_qkv[:, at : at + part.shape[1]], src=part)
            at += part.shape[1]
    return plus(dy, dx), {"norm1": d_norm, "qkv": d_qkv, "out": d_out}


def gated(gate, up, d_middle=None):
    """silu(gate) * up, or with its gradient those of gate and up; all (columns, tokens) in HBM."""
    outs = []
    for _ in range(1 if d_middle is None else 2):
        outs.append(hbm(gate.shape, gate.dtype))
    for tile in my_tiles(gate.shape):
        r0, rows, c0, columns = tile
        at = (slice(r0, r0 + rows), slice(c0, c0 + columns))
        g, u = load(gate[at]), load(up[at])
        act = sbuf(g.shape, nl.float32)
        nisa.activation(dst=act, op=nl.silu, data=g)
        if d_middle is None:
            nisa.tensor_tensor(dst=g, data1=act, data2=u, op=nl.multiply)
            nisa.dma_copy(dst=outs[0][at], src=g)
            continue
        slope, dm = sbuf(g.shape, nl.float32), load(d_middle[at])
        nisa.activation(dst=slope, op=nl.silu_dx, data=g)
        nisa.tensor_tensor(dst=slope, data1=slope, data2=u, op=nl.multiply)
        nisa.tensor_tensor(dst=g, data1=slope, data2=dm, op=nl.multiply)
        nisa.tensor_tensor(dst=u, data1=act, data2=dm, op=nl.multiply)
        nisa.dma_copy(dst=outs[0][at], src=g)
        nisa.dma_copy(dst=outs[1][at], src=u)
    return meet(outs)


@nki.jit
def mlp_forward(x, w, shape, group):
    """x + SwiGLU, and what its backward pass needs."""
    normed = meet((kernels.rms_norm(x, w["norm2"], shape["eps"]),))[0]
    gate, up = product(w["gate"], normed, True, True), product(w["up"], normed, True, True)
    middle = gated(gate, up)[0]
    return summed(x, product(middle, w["down"], True), group), normed, gate, up, middle


@nki.jit
def mlp_backward(x, dy, w, saved, shape, group):
    """The gradients of x and of the weights; `saved` is what `mlp_forward` returned."""
    normed, gate, up, middle = saved
    d_gate, d_up = gated(gate, up, product(w["down"], dy, False, True))
    d_normed = plus(product(d_gate, w["gate"], True, True), product(d_up, w["up"], True, True))
    dx, d_norm = meet(
        kernels.rms_norm_backward(x, w["norm2"], reduced(d_normed, group, 1), shape["eps"])
    )
    of_gate, of_up = product(normed, d_gate, True, True), product(normed, d_up, True, True)
    gradients = {"norm2": d_norm, "gate": of_gate, "up": of_up, "down": product(middle, dy)}
    return plus(dy, dx), gradients


@nki.jit
def loss_and_gradient(x, targets, first, w, shape, group):
    """The loss of each token, and the gradients of x, of the last norm and of the head.

    Args:
        targets: (tokens, 1) int32.
        first: (1, 1) int32, the first of this rank's tokens of the vocabulary.
        w: norm and head (hidden, this rank's columns).
        shape: eps; tokens: over how many the loss is averaged.
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    normed = meet((kernels.rms_norm(x, w["norm"], shape["eps"]),))[0]
    logits = product(normed, w["head"])
    tokens, columns = logits.shape
    largest, sums = hbm((tokens, 1), nl.float32), hbm((tokens, 2), nl.float32)
    own = rows_of_core(tokens, cores, me)
    for span in own:
        t0, t1 = span
        top = sbuf((t1 - t0, 1), nl.float32)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=load(logits[t0:t1, :]), axis=1)
        nisa.dma_copy(dst=largest[t0:t1, :], src=top)
    largest = over_ranks(largest, group, nl.maximum)
    gradient, losses = hbm(logits.shape, x.dtype), hbm((tokens, 1), nl.float32)
    for span in own:  # exp(logit - largest), its sum, and the logit of the target
        t0, t1 = span
        tile, bias, found = (
            load(logits[t0:t1, :]),
            load(largest[t0:t1, :]),
            sbuf((t1 - t0, 2), nl.float32),
        )
        nisa.tensor_scalar(dst=bias, data=bias, op0=nl.multiply, operand0=-1.0)
        powers, chosen = sbuf(tile.shape, nl.float32), is_target(targets[t0:t1, :], first, columns)
        nisa.activation(
            dst=powers,
            op=nl.exp,
            data=tile,
            bias=bias,
            reduce_op=nl.add,
            reduce_res=found[:, 0:1],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=bias)
        nisa.tensor_tensor(dst=chosen, data1=chosen, data2=tile, op=nl.multiply)
        nisa.tensor_reduce(dst=found[:, 1:2], op=nl.add, data=chosen, axis=1)
        nisa.dma_copy(dst=sums[t0:t1, :], src=found)
        nisa.dma_copy(dst=gradient[t0:t1, :], src=powers)
    sums = over_ranks(sums, group, nl.add)
    for span in own:  # (exp / sum - 1 of the target) / tokens; log(sum) - logit
        t0, t1 = span
        found, powers = load(sums[t0:t1, :]), load(gradient[t0:t1, :])
        part, chosen = sbuf((t1 - t0, 1), nl.float32), is_target(targets[t0:t1, :], first, columns)
        nisa.reciprocal(dst=part, data=found[:, 0:1])
        nisa.scalar_tensor_tensor(
            dst=powers,
            data=powers,
            op0=nl.multiply,
            operand0=part,
            op1=nl.subtract,
            operand1=chosen,
        )
        nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=1 / shape["tokens"])
        nisa.dma_copy(dst=gradient[t0:t1, :], src=powers)
        nisa.activation(dst=part, op=nl.log, data=found[:, 0:1])
        nisa.tensor_tensor(dst=part, data1=part, data2=found[:, 1:2], op=nl.subtract)
        nisa.dma_copy(dst=losses[t0:t1, :], src=part)
    meet((gradient,))
    d_head = product(normed, gradient, True)
    d_normed = reduced(product(gradient, w["head"], False, True), group, 1)
    dx, d_norm = kernels.rms_norm_backward(x, w["norm"], d_normed, shape["eps"])
    return losses, dx, {"norm": d_norm, "head": d_head}


def over_ranks(tensor, group, op):
    if group is None:
        return meet((tensor,))[0]
    found = hbm(tensor.shape, tensor.dtype)
    ncc.all_reduce(srcs=[tensor], dsts=[found], replica_group=group, op=op)
    return found


def is_target(targets, first, columns):
    """(rows, columns) of ones where a column is the row's target, zeros elsewhere."""
    rows = targets.shape[0]
    names, wanted = sbuf((rows, columns), nl.float32), sbuf((rows, 1), nl.float32)
    start = load(first.broadcast(0, rows))
    nisa.tensor_tensor(dst=wanted, data1=load(targets), data2=start, op=nl.subtract)
    nisa.iota(dst=names, pattern=[[1, columns]])
    nisa.tensor_scalar(dst=names, data=names, op0=nl.equal, operand0=wanted)
    return names


@nki.jit
def embedding_backward(ids, first, dx, rows):
    """The gradient of this rank's rows of the embedding, (rows, hidden)."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    chosen = hbm((ids.shape[0], rows), dx.dtype)
    for span in rows_of_core(ids.shape[0], cores, me):
        t0, t1 = span
        nisa.dma_copy(dst=chosen[t0:t1, :], src=is_target(ids[t0:t1, :], first, rows))
    meet((chosen,))
    return kernels.matmul(chosen, dx, True)


@nki.jit
def adamw(weight, gradient, moments, corrections, options, replicas):
    """A step of AdamW, in place: the weight, and the moments (2, ...) of its gradient.

    Args:
        corrections: (1, 2) float32, of step n: 1 / (1 - beta2**n), -rate / (1 - beta1**n).
        options: learning rate, decay, the two betas, epsilon.
        replicas: the group of ranks that have the same weights; None for none.
    """
    rate, decay, beta1, beta2, epsilon = options
    factors = load(corrections.broadcast(0, PMAX))
    mine = hbm(gradient.shape, gradient.dtype)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=mine, src=gradient)
    mine = over_ranks(mine, replicas, nl.add)
    size = 1
    for n in weight.shape:
        size *= n
    columns = by_rows(weight.reshape((size, 1))).shape[1]
    flat = (size // columns, columns)
    p, g = weight.reshape(flat), mine.reshape(flat)
    m, v = moments[0].reshape(flat), moments[1].reshape(flat)
    for tile in my_tiles(flat):
        r0, rows, c0, width = tile
        at = (slice(r0, r0 + rows), slice(c0, c0 + width))
        of_m, of_v, of_g, of_p = load(m[at]), load(v[at]), load(g[at]), load(p[at])
        square = sbuf(of_g.shape, nl.float32)
        nisa.activation(dst=square, op=nl.square, data=of_g)
        toward(of_m, of_g, beta1)
        toward(of_v, square, beta2)
        nisa.dma_copy(dst=m[at], src=of_m)
        nisa.dma_copy(dst=v[at], src=of_v)
        nisa.activation(dst=square, op=nl.sqrt, data=of_v, scale=factors[0:rows, 0:1])
        nisa.tensor_scalar(dst=square, data=square, op0=nl.add, operand0=epsilon)
        nisa.reciprocal(dst=square, data=square)
        nisa.scalar_tensor_tensor(
            dst=square,
            data=square,
            op0=nl.multiply,
            operand0=factors[0:rows, 1:2],
            op1=nl.multiply,
            operand1=of_m,
        )
        nisa.scalar_tensor_tensor(
            dst=of_p,
            data=of_p,
            op0=nl.multiply,
            operand0=1 - rate * decay,
            op1=nl.add,
            operand1=square,
        )
        nisa.dma_copy(dst=p[at], src=of_p)


def toward(mean, new, beta):
    """mean = beta * mean + (1 - beta) * new."""
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=beta)
    nisa.scalar_tensor_tensor(
        dst=mean, data=new, op0=nl.multiply, operand0=1 - beta, op1=nl.add, operand1=mean
    )
