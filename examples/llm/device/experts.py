"""A mixture of experts: a router, and SwiGLU of those that it chooses.

A rank has a part of every expert, or some experts whole; `w["router"]` has its own ones first, so
that kernels need no rank. Of one token only the chosen experts' weights are loaded; a prompt's
tokens go through all experts of the rank, weighted by zero where one wasn't chosen.
"""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl

from .mlp import swiglu
from .norm import norm_column, turned_rows
from .tiles import (
    BANK,
    PMAX,
    by_rows,
    by_tiles,
    columns_of,
    partitions,
    product,
    psum,
    sbuf,
    share,
    store_rows,
)
from .with_library import library_gates

EIGHT = 8  # values that max8 gives; at most so many experts are chosen


def gates_of(x, router, shape):
    """The experts' weights, zero of those that aren't chosen, of each tile of 128 tokens.

    Args:
        x: (P, n / P, tokens) tile, at most 512 tokens.
        router: (n, experts) in HBM, at least 8 experts.
    """
    gates, tokens = [], x.shape[2]
    if "router_topk" in shape["library"]:
        for at in range(0, tokens, PMAX):
            gates.append(library_gates(x[:, :, at : min(at + PMAX, tokens)], router, shape))
        return gates
    logits = product(x, (by_rows(router),))
    for i in range(logits.shape[1]):
        of_tile = logits[0 : min(PMAX, tokens - i * PMAX), i, :]
        gates.append(shares_of(of_tile, shape["chosen"], shape["renormalise"]))
    return gates


def shares_of(logits, chosen, renormalise):
    """As `gates_of`, from logits (tokens, experts) float32."""
    rows = logits.shape[0]
    top, bias = sbuf((rows, EIGHT), nl.float32), sbuf((rows, 1), nl.float32)
    nisa.max8(dst=top, src=logits)
    nisa.tensor_scalar(dst=bias, data=top[:, 0:1], op0=nl.multiply, operand0=-1.0)
    exponentials, total = sbuf(logits.shape, nl.float32), sbuf((rows, 1), nl.float32)
    nisa.activation(
        dst=exponentials,
        op=nl.exp,
        data=logits,
        bias=bias,
        reduce_op=nl.add,
        reduce_res=total,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    kept = sbuf(logits.shape, nl.float32)
    nisa.scalar_tensor_tensor(
        dst=kept,
        data=logits,
        op0=nl.greater_equal,
        operand0=top[:, chosen - 1 : chosen],
        op1=nl.multiply,
        operand1=exponentials,
    )
    if renormalise:
        nisa.tensor_reduce(dst=total, op=nl.add, data=kept, axis=1)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=kept, data=kept, op0=nl.multiply, operand0=total)
    return kept


def experts_of_prompt(x, w, shape, partial, first, blocks, normed):
    """This rank's part of the output; arguments as of `attend_prompt`."""
    count, hidden, inner = w["gate"].shape
    width = partitions(inner)
    for block in blocks:
        t0, t1 = block
        turned_x = turned_rows(x, t0, t1, None if normed else w["norm2"], shape)
        tiles = -(-(t1 - t0) // PMAX)
        rows = min(PMAX, t1 - t0)
        total = sbuf((rows, tiles, hidden), nl.float32)
        nisa.memset(dst=total, value=0.0)
        gates = gates_of(turned_x, w["router"], shape)
        for e in range(count):
            middle = columns_of(turned_x, by_rows(w["gate"][e]), width, x.dtype, op=nl.silu)
            other = columns_of(turned_x, by_rows(w["up"][e]), width, x.dtype)
            nisa.tensor_tensor(dst=middle, data1=middle, data2=other, op=nl.multiply)
            down = by_tiles(w["down"][e], width)
            for n0 in range(0, hidden, BANK):
                n1 = min(n0 + BANK, hidden)
                result = product(middle, (down[:, :, n0:n1],))
                for i in range(tiles):
                    height = gates[i].shape[0]
                    place = total[0:height, i, n0:n1]
                    nisa.scalar_tensor_tensor(
                        dst=place,
                        data=result[0:height, i, :],
                        op0=nl.multiply,
                        operand0=gates[i][:, e : e + 1],
                        op1=nl.add,
                        operand1=place,
                    )
        store_rows(partial[t0 - first : t1 - first, :], 0, hidden, total)


def experts_of_token(x, w, shape, partial):
    """This rank's part of the output of one token: x (P, n) tile, partial (1, hidden) in HBM."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    count, hidden, inner = w["gate"].shape
    normed = norm_column(x, w["norm2"], shape)
    gates = gates_of(normed, w["router"], shape)[0]
    own = sbuf((1, max(count, EIGHT)), nl.float32)
    nisa.memset(dst=own, value=-1.0)
    nisa.tensor_copy(dst=own[:, 0:count], src=gates[:, 0:count])
    top, places = sbuf((1, EIGHT), nl.float32), sbuf((1, EIGHT), nl.uint32)
    nisa.max8(dst=top, src=own)
    nisa.nc_find_index8(dst=places, data=own, vals=top)
    p, width = normed.shape[0], partitions(inner)
    of_gate = w["gate"].reshape((count, p, hidden // p, inner))
    of_up = w["up"].reshape((count, p, hidden // p, inner))
    of_down = w["down"].reshape((count, inner // width, width, hidden)).permute((0, 2, 1, 3))
    gate_views, up_views, down_views = [], [], []
    for i in range(min(shape["chosen"], count)):
        expert = nisa.register_alloc(places[:, i : i + 1])
        gate_views.append(of_gate[expert])
        up_views.append(of_up[expert])
        down_views.append(of_down[expert])
    middle = swiglu(normed, gate_views, up_views)
    weighted = sbuf(middle.shape, x.dtype)
    ones, repeated = sbuf((1, width), nl.float32), psum((width, EIGHT))
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=repeated, stationary=ones, moving=top)
    factors, n = sbuf((width, EIGHT), nl.float32), inner // width
    nisa.tensor_copy(dst=factors, src=repeated)
    for i in range(len(gate_views)):
        at = slice(i * n, (i + 1) * n)
        nisa.tensor_scalar(
            dst=weighted[:, at, :],
            data=middle[:, at, :],
            op0=nl.multiply,
            operand0=factors[:, i : i + 1],
        )
    n0, n1 = share(hidden, cores, me)
    for at in range(n0, n1, BANK):
        end = min(at + BANK, n1)
        parts = []
        for view in down_views:
            parts.append(view[:, :, at:end])
        store_rows(partial, at, end, product(weighted, parts))
