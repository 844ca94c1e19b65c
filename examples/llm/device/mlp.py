"""SwiGLU: of a block of a prompt's tokens, and of one token."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl

from .norm import norm_column, turned_rows
from .tiles import (
    by_rows,
    by_tiles,
    columns_of,
    partitions,
    rows_of,
    sbuf,
    share,
    sum_over_cores,
)


def mlp_of_prompt(x, w, shape, partial, first, blocks, normed):
    """This rank's part of the output; arguments as of `attend_prompt`."""
    gate, up = by_rows(w["gate"]), by_rows(w["up"])
    width = partitions(gate.shape[2])
    down = by_tiles(w["down"], width)
    for block in blocks:
        t0, t1 = block
        turned_x = turned_rows(x, t0, t1, None if normed else w["norm2"], shape)
        middle = columns_of(turned_x, gate, width, x.dtype, op=nl.silu)
        other = columns_of(turned_x, up, width, x.dtype)
        nisa.tensor_tensor(dst=middle, data1=middle, data2=other, op=nl.multiply)
        rows_of(middle, down, partial[t0 - first : t1 - first, :], 0, partial.shape[1])


def mlp_of_token(x, w, shape, partial):
    """This rank's part of the output of one token: x (P, n) tile, partial (1, hidden) in HBM."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    normed = norm_column(x, w["norm2"], shape)
    middle = swiglu(normed, (by_rows(w["gate"]),), (by_rows(w["up"]),))
    n0, n1 = share(partial.shape[1], cores, me)
    rows_of(middle, by_tiles(w["down"], middle.shape[0]), partial, n0, n1)


def swiglu(x, gates, ups):
    """silu(gate.T @ x) * (up.T @ x) of one token and of MLPs that follow each other in the result.

    Args:
        x: (P, K, 1) tile; cores share the contraction with it.
        gates, ups: as many views (P, K, columns) of HBM.
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    columns = gates[0].shape[2]
    width = partitions(columns)
    n, count = columns // width, len(gates)
    k0, k1 = share(x.shape[1], cores, me)
    both = sbuf((width, 2, count * n, 1), nl.float32)
    for i in range(count):
        at = slice(i * n, (i + 1) * n)
        of_gate = columns_of(x, gates[i], width, nl.float32, k0, k1)
        nisa.tensor_copy(dst=both[:, 0, at, :], src=of_gate)
        of_up = columns_of(x, ups[i], width, nl.float32, k0, k1)
        nisa.tensor_copy(dst=both[:, 1, at, :], src=of_up)
    both = sum_over_cores(both, nl.float32)
    middle = sbuf((width, count * n, 1), x.dtype)
    nisa.activation(dst=both[:, 0], op=nl.silu, data=both[:, 0])
    nisa.tensor_tensor(dst=middle, data1=both[:, 0], data2=both[:, 1], op=nl.multiply)
    return middle
