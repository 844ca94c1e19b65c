"""Experts on different ranks: a prompt's tokens travel to those that were chosen, and back.

Each rank has a share of the tokens. For every rank there is a slot with room for all of them; those
that chose an expert there go to its front, in their order, by `all_to_all_v`. The rank sends them
through its experts, whose weights it works out anew from its router, and sends them back; what
comes back for a token from several ranks is added up.
"""

from __future__ import annotations

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

from .experts import experts_of_prompt, gates_of
from .norm import turned_rows
from .tiles import PMAX, hbm, load, psum, sbuf


def experts_of_ranks(x, w, shape, group, ranks, blocks):
    """What the experts of all ranks make of this rank's tokens.

    Args:
        x: (tokens, hidden) in HBM, at most 128 tokens, normalised.
        w: router (own experts first), dispatch (the same, in order), gate, up, down.
        blocks: of this core, of ranks * tokens rows.
    """
    tokens, hidden = x.shape
    me = nl.program_id(0)
    slots = (ranks * tokens, hidden)
    outward, homeward = hbm((3, ranks), nl.uint32), hbm((3, ranks), nl.uint32)
    leaving, arrived, done, back = (
        hbm(slots, x.dtype),
        hbm(slots, x.dtype),
        hbm(slots, x.dtype),
        hbm(slots, x.dtype),
    )
    clear(arrived, blocks)
    clear(leaving, blocks)
    clear(back, blocks)
    nisa.core_barrier(data=leaving, cores=(0, 1))
    gates = gates_of(turned_rows(x, 0, tokens, None, shape), w["dispatch"], shape)[0]
    places, counts = places_of(gates, ranks, hidden)
    if me == 0:
        starts, rows = sbuf((1, ranks), nl.uint32), load(x)
        nisa.iota(dst=starts, pattern=[[tokens * hidden, ranks]])
        nisa.dma_copy(dst=outward[0:1, :], src=counts)
        nisa.dma_copy(dst=outward[1:2, :], src=starts)
        nisa.dma_copy(dst=homeward[1:2, :], src=starts)
        for rank in range(ranks):
            slot = rows_at(leaving, places[:, rank : rank + 1], tokens)
            nisa.dma_copy(dst=slot, src=rows, oob_mode=nisa.oob_mode.skip)
    ncc.all_to_all_v(srcs=[leaving], dsts=[arrived], replica_group=group, metadata_tensor=outward)
    experts_of_prompt(arrived, w, shape, done, 0, blocks, True)
    if me == 0:
        nisa.dma_copy(dst=homeward[0:1, :], src=outward[2:3, :])
    ncc.all_to_all_v(srcs=[done], dsts=[back], replica_group=group, metadata_tensor=homeward)
    out = hbm(x.shape, x.dtype)
    if me == 0:
        total = sbuf((tokens, hidden), nl.float32)
        nisa.memset(dst=total, value=0.0)
        for rank in range(ranks):
            part = sbuf((tokens, hidden), x.dtype)
            nisa.memset(dst=part, value=0.0)
            slot = rows_at(back, places[:, rank : rank + 1], tokens)
            nisa.dma_copy(dst=part, src=slot, oob_mode=nisa.oob_mode.skip)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.dma_copy(dst=out, src=total)
    nisa.core_barrier(data=out, cores=(0, 1))
    return out


def places_of(gates, ranks, hidden):
    """Where each token goes in each rank's slot, and how many elements each rank gets.

    Args:
        gates: (tokens, experts) tile; a rank has neighbours.

    Returns:
        (tokens, ranks) int32 rows of all slots, beyond them for a token that doesn't go there, and
        (1, ranks) uint32.
    """
    tokens, experts = gates.shape
    goes, stays = sbuf((tokens, ranks), nl.float32), sbuf((tokens, ranks), nl.float32)
    of_ranks = gates.reshape((tokens, ranks, experts // ranks))
    nisa.tensor_reduce(dst=goes, op=nl.maximum, data=of_ranks, axis=2)
    nisa.tensor_scalar(dst=goes, data=goes, op0=nl.greater, operand0=0.0)
    before, earlier = sbuf((tokens, tokens), nl.float32), psum((tokens, ranks))
    nisa.memset(dst=before, value=1.0)
    nisa.affine_select(
        dst=before,
        pattern=[[1, tokens]],
        channel_multiplier=-1,
        on_true_tile=before,
        on_false_value=0.0,
        cmp_op=nl.greater,
    )
    nisa.nc_matmul(dst=earlier, stationary=before, moving=goes)  # how many go there before it
    ones, total, counts = (
        sbuf((tokens, 1), nl.float32),
        psum((1, ranks)),
        sbuf((1, ranks), nl.uint32),
    )
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=total, stationary=ones, moving=goes)
    nisa.tensor_scalar(dst=counts, data=total, op0=nl.multiply, operand0=float(hidden))
    places, slots = sbuf((tokens, ranks), nl.int32), sbuf((tokens, ranks), nl.float32)
    nisa.iota(dst=slots, pattern=[[tokens, ranks]])
    nisa.tensor_scalar(  # 0 where it goes
        dst=stays,
        data=goes,
        op0=nl.subtract,
        operand0=1.0,
        op1=nl.multiply,
        operand1=-2.0 * ranks * tokens,
    )
    nisa.tensor_tensor(dst=slots, data1=slots, data2=earlier, op=nl.add)
    nisa.tensor_tensor(dst=places, data1=slots, data2=stays, op=nl.add)
    return places, counts


def rows_at(slots, places, tokens):
    hidden = slots.shape[1]
    return slots.ap([[hidden, tokens], [1, hidden]], vector_offset=places, indirect_dim=0)


def clear(rows, blocks):
    """Zeros: places without a token are computed like all others."""
    zeros = sbuf((PMAX, rows.shape[1]), rows.dtype)
    nisa.memset(dst=zeros, value=0.0)
    for block in blocks:
        first, last = block
        for at in range(first, last, PMAX):
            end = min(at + PMAX, last)
            nisa.dma_copy(dst=rows[at:end, :], src=zeros[0 : end - at, :])
