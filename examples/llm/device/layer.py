"""A layer of the model, for a prompt and for one token: two launches of the same parts."""

from __future__ import annotations

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

from .attention import attend_prompt, attention_of_token, queries_of_prompt
from .dispatch import experts_of_ranks
from .experts import experts_of_prompt, experts_of_token
from .mlp import mlp_of_prompt, mlp_of_token
from .norm import normalised
from .tiles import (
    BANK,
    PMAX,
    by_rows,
    hbm,
    load,
    partitions,
    sbuf,
    share,
    sum_over_ranks,
)
from .with_library import library_attend_prompt, library_mlp

ACTIVATIONS = 80 * 1024  # bytes per partition that a block of tokens may take


@nki.jit
def layer_of_prompt(x, w, keys, values, tables, shape, group=None, sequence_ranks=1):
    """A layer on a prompt's tokens.

    Args:
        x: (tokens, hidden); with sequence parallelism this rank's share of the tokens.
        w: the layer's weights by name, this rank's part.
        keys, values: the cache, (kv heads, d, context) and (kv heads, context, d).
        tables: cos and sin (d, context), rotation (d, d).
        shape: heads, kv_heads, head_dim, eps of this rank; experts, chosen, renormalise; library:
            kernels of nki-library in place of ours, by name, and what they take.
        group: of the ranks that share the weights; None for one rank.
        sequence_ranks: how many share the tokens between products.

    Returns:
        Like x.
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    tokens, hidden = x.shape[0] * sequence_ranks, x.shape[1]
    blocks = blocks_of(tokens, w, x.dtype, cores, me)
    own = rows_of_core(x.shape[0], cores, me)
    normed, cache = sequence_ranks > 1, (keys, values)
    library, rounds = shape["library"], [(0, tokens, blocks, own)]
    together = "attention_cte" in library or "mlp" in library  # they take all tokens at once
    if not (normed or together):
        rounds = rounds_of(tokens, w, x.dtype, cores, me)
    before = gathered(x, w["norm1"], shape, group, sequence_ranks, own) if normed else x
    queries = queries_of_prompt(before, w, cache, tables, shape, blocks, normed)
    sums, middle, out = [], hbm(x.shape, x.dtype), hbm(x.shape, x.dtype)
    for part in rounds:
        first, last, of_core, _ = part
        if "attention_cte" in library:
            rows = rows_of_core(tokens, cores, me)
            partial = library_attend_prompt(queries, w, cache, shape, rows)
        else:
            partial = hbm((last - first, hidden), x.dtype)
            attend_prompt(queries, w, cache, shape, partial, first, of_core)
        sums.append(reduced(partial, group, sequence_ranks))
    mlp, after = experts_of_prompt if shape["experts"] else mlp_of_prompt, []
    for n in range(len(rounds)):
        first, last, of_core, rows = rounds[n]
        add_rows(middle, x, sums[n], rows, first)
        if together:
            nisa.core_barrier(data=middle, cores=(0, 1))
        if "dispatch" in w and normed and x.shape[0] <= PMAX:
            before = normalised(middle, w["norm2"], shape, own)
            after.append(experts_of_ranks(before, w, shape, group, sequence_ranks, blocks))
            continue
        before = middle
        if normed:
            before = gathered(middle, w["norm2"], shape, group, sequence_ranks, own)
        if "mlp" in library and not shape["experts"]:
            partial = library_mlp(before, w, shape, normed)
        else:
            partial = hbm((last - first, hidden), x.dtype)
            mlp(before, w, shape, partial, first, of_core, normed)
        after.append(reduced(partial, group, sequence_ranks))
    for n in range(len(rounds)):
        add_rows(out, middle, after[n], rounds[n][3], rounds[n][0])
    return out


@nki.jit
def layer_of_token(x, w, keys, values, step, shape, span, group=None):
    """A layer on one token; as `layer_of_prompt`, with x (1, hidden).

    Args:
        step: position (1, 1) int32, angles (d, 2), rotation (d, d).
        span: how many places of the cache are looked at.
    """
    own = load_token(x)
    partial = attention_of_token(x, own, w, (keys, values), step, shape, span)
    own = added(own, sum_over_ranks(partial, group))
    if "mlp" in shape["library"] and not shape["experts"]:
        middle = stored_token(own, x.shape)
        nisa.core_barrier(data=middle, cores=(0, 1))
        partial = library_mlp(middle, w, shape, False)
    else:
        partial = hbm(x.shape, x.dtype)
        mlp = experts_of_token if shape["experts"] else mlp_of_token
        mlp(own, w, shape, partial)
    return stored_token(added(own, sum_over_ranks(partial, group)), x.shape)


def blocks_of(tokens, w, dtype, cores, me):
    """(first, last) of the blocks of tokens that a core works on, in turn.

    A block has at most 512 tokens, and fewer where its activations would fill SBUF.
    """
    hidden, inner = w["gate"].shape[-2:]
    of_token = hidden // partitions(hidden) + 2 * inner // partitions(inner)
    size = BANK
    while size > PMAX and size * of_token * dtype.itemsize > ACTIVATIONS:
        size //= 2
    size, found = min(size, -(-tokens // cores)), []
    for at in range(size * me, tokens, size * cores):
        found.append((at, min(at + size, tokens)))
    return found


def rounds_of(tokens, w, dtype, cores, me):
    """(first, last, block of this core, its rows) of stretches that have a block for each core.

    What the ranks have of a stretch is added up while they work on the next one.
    """
    every, found = [], []
    for core in range(cores):
        every.append(blocks_of(tokens, w, dtype, cores, core))
    for n in range(len(every[0])):
        of_core = every[me][n : n + 1]
        last, rows = tokens, []
        for block in of_core:
            for at in range(block[0], block[1], PMAX):
                rows.append((at, min(at + PMAX, block[1])))
        if n + 1 < len(every[0]):
            last = every[0][n + 1][0]
        found.append((every[0][n][0], last, of_core, rows))
    return found


def rows_of_core(rows, cores, me):
    """(first, last) of tiles of at most 128 rows; cores get neighbours."""
    first, last = share(rows, cores, me)
    found = []
    for at in range(first, last, PMAX):
        found.append((at, min(at + PMAX, last)))
    return found


def gathered(x, weight, shape, group, ranks, own):
    """All ranks' rows, normalised by the rank that has them."""
    mine, every = normalised(x, weight, shape, own), hbm((x.shape[0] * ranks, x.shape[1]), x.dtype)
    ncc.all_gather(srcs=[mine], dsts=[every], replica_group=group, collective_dim=0)
    return every


def reduced(partial, group, ranks):
    """The sum over ranks: all rows, or this rank's with sequence parallelism."""
    if ranks == 1:
        return sum_over_ranks(partial, group)
    mine = hbm((partial.shape[0] // ranks, partial.shape[1]), partial.dtype)
    ncc.reduce_scatter(
        srcs=[partial], dsts=[mine], replica_group=group, collective_dim=0, op=nl.add
    )
    return mine


def add_rows(out, x, more, own, first=0):
    """out = x + more in rows of this core; `first` is that of more's first row."""
    for span in own:
        t0, t1 = span
        total, other = load(x[t0:t1, :]), load(more[t0 - first : t1 - first, :])
        nisa.tensor_tensor(dst=total, data1=total, data2=other, op=nl.add)
        nisa.dma_copy(dst=out[t0:t1, :], src=total)


def load_token(x):
    """(1, hidden) in HBM as (P, hidden / P), neighbours side by side."""
    view = by_rows(x.reshape((x.shape[1], 1)))
    return load(view.reshape((view.shape[0], view.shape[1])))


def stored_token(own, shape):
    """What `load_token` gives, in HBM again, by the first core."""
    out = hbm(shape, own.dtype)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out.reshape(own.shape), src=own)
    return out


def added(own, more):
    total = sbuf(own.shape, own.dtype)
    nisa.tensor_tensor(dst=total, data1=own, data2=load_token(more), op=nl.add)
    return total
