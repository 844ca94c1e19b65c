"""The two ends of the model: a token's embedding, and the next token from the last state."""

from __future__ import annotations

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

from .layer import load_token, reduced
from .norm import norm_column
from .tiles import PMAX, by_rows, columns_of, hbm, load, sbuf, turned

NOT_A_TOKEN = 2.0**20  # more than any vocabulary has
LOWEST = -3e38  # the logit of a place of the weights that belongs to no token


@nki.jit
def embedding(ids, table, first, position=None, cos=None, sin=None, group=None, ranks=1):
    """The rows of the table that ids name; each rank has a stretch of the table.

    Args:
        ids: (tokens, 1) int32.
        table: (rows, hidden), this rank's.
        first: (1, 1) int32, the token of its first row.
        position, cos, sin: (1, 1) int32, (d, context) float32: of a token at a run-time position.
        group: of the ranks that share the table.
        ranks: that share the tokens (sequence parallelism).

    Returns:
        (tokens, hidden), or a rank's share of the tokens; with a position also the cosines and
        sines there, (d, 2).
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    tokens, hidden = ids.shape[0], table.shape[1]
    out = hbm((tokens, hidden), table.dtype)
    for at in range(PMAX * me, tokens, PMAX * cores):
        height = min(PMAX, tokens - at)
        row, rows = load(ids[at : at + height, :]), sbuf((height, hidden), table.dtype)
        start = load(first.broadcast(0, height))
        nisa.tensor_tensor(dst=row, data1=row, data2=start, op=nl.subtract)
        nisa.memset(dst=rows, value=0.0)
        chosen = table.ap([[hidden, height], [1, hidden]], vector_offset=row, indirect_dim=0)
        nisa.dma_copy(dst=rows, src=chosen, oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(dst=out[at : at + height, :], src=rows)
    x = reduced(out, group, ranks)
    if position is None:
        return x
    angles = hbm((cos.shape[0], 2), cos.dtype)
    if me == 0:
        at = nisa.register_alloc(load(position))
        nisa.dma_copy(dst=angles[:, 0:1], src=cos[:, nl.ds(at, 1)])
        nisa.dma_copy(dst=angles[:, 1:2], src=sin[:, nl.ds(at, 1)])
    return x, angles


@nki.jit
def next_token(x, norm, head, first, position, shape, group=None, ranks=1, gathers=False):
    """The token with the largest logit after the last row of x.

    Args:
        x: (tokens, hidden); with `gathers`, this rank's share of the tokens.
        norm: (hidden,).
        head: (hidden, columns), this rank's: a half for each core, in which column
            128 * f + p belongs to token p * (columns of the half / 128) + f.
        first: (1, 1) int32, the token of its first column.
        position: (1, 1) int32, of that row.
        shape: eps, vocabulary, last: the row that counts; library.
        group, ranks: of the ranks that share the head.

    Returns:
        (1, 1) int32, the logits of this rank's tokens (1, columns) float32, and position + 1.
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    if gathers:
        mine, every = hbm(x.shape, x.dtype), hbm((x.shape[0] * ranks, x.shape[1]), x.dtype)
        if me == 0:
            nisa.dma_copy(dst=mine, src=x)
        ncc.all_gather(srcs=[mine], dsts=[every], replica_group=group, collective_dim=0)
        x = every
    last = shape["last"]
    normed = norm_column(load_token(x[last : last + 1, :]), norm, shape)
    columns = head.shape[1] // cores
    part = slice(columns * me, columns * (me + 1))
    values = columns_of(normed, by_rows(head)[:, :, part], PMAX, nl.float32)
    values = values.reshape((PMAX, columns // PMAX))
    logits, best = hbm((1, head.shape[1]), nl.float32), hbm((cores, 2), nl.float32)
    nisa.dma_copy(dst=logits[:, part], src=values)
    names = tokens_of(values.shape, first, columns * me)
    nothing = sbuf(values.shape, nl.float32)
    nisa.tensor_scalar(
        dst=nothing,
        data=names,
        op0=nl.greater_equal,
        operand0=float(shape["vocabulary"]),
        op1=nl.multiply,
        operand1=LOWEST,
    )
    nisa.tensor_tensor(dst=values, data1=values, data2=nothing, op=nl.add)
    found = first_of_largest(values, names)
    found = first_of_largest(turned(found[:, 0:1]), turned(found[:, 1:2]))
    nisa.dma_copy(dst=best[me : me + 1, :], src=found)
    if group is None:
        nisa.core_barrier(data=best, cores=(0, 1))
    else:
        every = hbm((cores * ranks, 2), nl.float32)
        ncc.all_gather(srcs=[best], dsts=[every], replica_group=group, collective_dim=0)
        best = every
    token, after = hbm((1, 1), nl.int32), hbm((1, 1), nl.int32)
    if me == 0:
        count = best.shape[0]
        found = first_of_largest(
            load(best[:, 0:1].reshape((1, count))), load(best[:, 1:2].reshape((1, count)))
        )
        number, behind = sbuf((1, 1), nl.int32), load(position)
        nisa.tensor_copy(dst=number, src=found[:, 1:2])
        nisa.dma_copy(dst=token, src=number)
        nisa.tensor_scalar(dst=behind, data=behind, op0=nl.add, operand0=1)
        nisa.dma_copy(dst=after, src=behind)
    return token, logits, after


def tokens_of(shape, first, offset):
    """The tokens that a tile of logits belongs to, as float32: first + offset + p * n + f."""
    p, n = shape
    names, start = sbuf((p, n), nl.float32), sbuf((p, 1), nl.float32)
    nisa.iota(dst=names, pattern=[[1, n]], offset=offset, channel_multiplier=n)
    nisa.tensor_copy(dst=start, src=load(first.broadcast(0, p)))
    nisa.tensor_scalar(dst=names, data=names, op0=nl.add, operand0=start)
    return names


def first_of_largest(values, names):
    """(P, 2): the largest value of each row, and the smallest of the names that have it."""
    found = sbuf((values.shape[0], 2), nl.float32)
    nisa.tensor_reduce(dst=found[:, 0:1], op=nl.maximum, data=values, axis=1)
    has = sbuf(values.shape, nl.float32)
    nisa.tensor_scalar(dst=has, data=values, op0=nl.greater_equal, operand0=found[:, 0:1])
    nisa.scalar_tensor_tensor(
        dst=has, data=has, op0=nl.multiply, operand0=-NOT_A_TOKEN, op1=nl.add, operand1=names
    )
    nisa.tensor_reduce(dst=found[:, 1:2], op=nl.minimum, data=has, axis=1)
    nisa.tensor_scalar(dst=found[:, 1:2], data=found[:, 1:2], op0=nl.add, operand0=NOT_A_TOKEN)
    return found
