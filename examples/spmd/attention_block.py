"""A causal attention block: QKV projection, attention per head, output projection, in bfloat16.

Heads are shared out between the cores, so a core needs only its own columns of the projections and
its own rows of the output projection. Two things are shared on the way:

- x transposed, which every projection contracts over: each core transposes half of the rows into
  shared_hbm, and a core_barrier says when the other half can be read;
- the output, a sum over all heads: a core computes its heads' part of all rows, sends half of the
  rows to the other core with sendrecv, and finishes the other half.

`examples/demo.py` runs this kernel and reports on it at length.

    python examples/spmd/attention_block.py [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from _common import Example, run
from _tiles import my_share, tiles
from flash_attention import attend, load
from flash_attention import reference as attention_reference

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

HEADS = 8


@nki.jit
def attention_block(x, w_q, w_k, w_v, w_o, heads=HEADS):
    """out = concat(attention of each head) @ w_o, with q, k, v = x @ w_q, x @ w_k, x @ w_v.

    Args:
        x: (sequence, hidden); the sequence is a multiple of 128 per core.
        w_q, w_k, w_v, w_o: (hidden, hidden); head h has columns h*d...(h+1)*d of the first three
            and the same rows of the last.
        heads: how many, a multiple of the number of cores; d = hidden / heads is at most 128.
    """
    length, hidden = x.shape
    cores, d = nl.num_programs(axes=0), hidden // heads
    assert hidden % heads == 0 and heads % cores == 0 and d <= nl.tile_size.pmax
    assert length % (cores * nl.tile_size.pmax) == 0
    out = nl.ndarray((length, hidden), dtype=x.dtype, buffer=nl.shared_hbm)
    x_turned = shared_transpose(x)
    start, stop = my_share(heads)
    columns = slice(start * d, stop * d)
    values = project_values(x_turned, w_v[:, columns])
    contexts = []
    for head in range(stop - start):
        mine = slice((start + head) * d, (start + head + 1) * d)
        queries = project_turned(x_turned, w_q[:, mine])
        keys = project_turned(x_turned, w_k[:, mine])
        of_head = [v[:, head * d : (head + 1) * d] for v in values]
        contexts.append(turned_contexts(queries, keys, of_head))
    w_rows = [load(w_o[(start + h) * d : (start + h + 1) * d, :]) for h in range(stop - start)]
    project_out(out, contexts, w_rows)
    return out


def shared_transpose(x):
    """x.T as SBUF tiles of 128 rows; the cores share the work through shared_hbm."""
    (length, hidden), pmax = x.shape, nl.tile_size.pmax
    turned = nl.ndarray((hidden, length), dtype=x.dtype, buffer=nl.shared_hbm)
    start, stop = my_share(length, pmax)
    rows = [load(x[at : at + width, :]) for at, width in tiles(start, stop, pmax)]
    for tile in tiles(0, hidden, pmax):
        h0, height = tile
        strip = nl.ndarray((height, stop - start), dtype=x.dtype, buffer=nl.sbuf)
        for i in range(len(rows)):
            row = rows[i]
            put_turned(strip[:, i * pmax : (i + 1) * pmax], row[:, h0 : h0 + height])
        nisa.dma_copy(dst=turned[h0 : h0 + height, start:stop], src=strip)
    nisa.core_barrier(data=turned, cores=(0, 1))
    return [load(turned[h0 : h0 + height, :]) for h0, height in tiles(0, hidden, pmax)]


def put_turned(dst, src):
    """dst = src.T, by way of the Tensor engine and PSUM."""
    psum = nl.ndarray(dst.shape, dtype=src.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=psum, data=src, engine=nisa.tensor_engine)
    nisa.tensor_copy(dst=dst, src=psum)


def project_turned(x_turned, weight):
    """(x @ weight).T as one (d, sequence) tile: d is contracted next, so it lies on partitions."""
    length, d = x_turned[0].shape[1], weight.shape[1]
    w_tiles = weight_tiles(weight)
    result = nl.ndarray((d, length), dtype=weight.dtype, buffer=nl.sbuf)
    for tile in tiles(0, length, nl.tile_size.gemm_moving_fmax):
        s0, width = tile
        acc = nl.ndarray((d, width), dtype=nl.float32, buffer=nl.psum)
        for i in range(len(x_turned)):
            x = x_turned[i]
            nisa.nc_matmul(dst=acc, stationary=w_tiles[i], moving=x[:, s0 : s0 + width])
        nisa.tensor_copy(dst=result[:, s0 : s0 + width], src=acc)
    return result


def project_values(x_turned, weight):
    """x @ weight as tiles of 128 rows: attention contracts values over the sequence."""
    length, columns = x_turned[0].shape[1], weight.shape[1]
    w_tiles = weight_tiles(weight)
    values = []
    for block in tiles(0, length, nl.tile_size.pmax):
        s0, height = block
        value = nl.ndarray((height, columns), dtype=weight.dtype, buffer=nl.sbuf)
        for tile in tiles(0, columns, nl.tile_size.gemm_moving_fmax):
            c0, width = tile
            acc = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.psum)
            for i in range(len(x_turned)):
                x = x_turned[i]
                nisa.nc_matmul(
                    dst=acc,
                    stationary=x[:, s0 : s0 + height],
                    moving=w_tiles[i][:, c0 : c0 + width],
                )
            nisa.tensor_copy(dst=value[:, c0 : c0 + width], src=acc)
        values.append(value)
    return values


def weight_tiles(weight):
    """A weight as SBUF tiles of 128 rows."""
    return [load(weight[h0 : h0 + n, :]) for h0, n in tiles(0, weight.shape[0], nl.tile_size.pmax)]


def turned_contexts(queries, keys, values):
    """Attention of one head, transposed: a (d, sequence) tile."""
    d, length = queries.shape
    contexts = nl.ndarray((d, length), dtype=queries.dtype, buffer=nl.sbuf)
    for tile in tiles(0, length, nl.tile_size.pmax):
        q0, width = tile
        span = slice(q0, q0 + width)
        context = attend(queries[:, span], keys, values, q0, d**-0.5, queries.dtype)
        put_turned(contexts[:, span], context)
    return contexts


def project_out(out, contexts, w_rows):
    """Multiply by the output weights, add up both cores' heads, store this core's rows."""
    length, pmax = contexts[0].shape[1], nl.tile_size.pmax
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    share = length // cores
    for tile in tiles(0, share, pmax):
        s0, height = tile
        row = me * share + s0
        mine = heads_part(contexts, w_rows, row)
        if cores == 2:
            peer = 1 - me
            theirs = heads_part(contexts, w_rows, peer * share + s0)
            received = nl.ndarray(mine.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.sendrecv(
                src=theirs, dst=received, send_to_rank=peer, recv_from_rank=peer, pipe_id=0
            )
            nisa.tensor_tensor(dst=mine, data1=mine, data2=received, op=nl.add)
        # The DMA engine rounds to the output's dtype on the way.
        nisa.dma_copy(dst=out[row : row + height, :], src=mine)


def heads_part(contexts, w_rows, row):
    """This core's heads' contribution to 128 output rows, in float32."""
    hidden, pmax = w_rows[0].shape[1], nl.tile_size.pmax
    part = nl.ndarray((pmax, hidden), dtype=nl.float32, buffer=nl.sbuf)
    for tile in tiles(0, hidden, nl.tile_size.gemm_moving_fmax):
        c0, width = tile
        acc = nl.ndarray((pmax, width), dtype=nl.float32, buffer=nl.psum)
        for i in range(len(w_rows)):
            w = w_rows[i]
            nisa.nc_matmul(
                dst=acc, stationary=contexts[i][:, row : row + pmax], moving=w[:, c0 : c0 + width]
            )
        nisa.tensor_copy(dst=part[:, c0 : c0 + width], src=acc)
    return part


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """x and four weights in bfloat16, scaled so that activations keep their size."""
    length, hidden = (256, 320) if small else (1024, 1024)
    x = rng.standard_normal((length, hidden), dtype=np.float32)
    weights = rng.standard_normal((4, hidden, hidden), dtype=np.float32) * hidden**-0.5
    return tuple(a.astype(ml_dtypes.bfloat16) for a in (x, *weights))


def reference(
    x: np.ndarray,
    w_q: np.ndarray,
    w_k: np.ndarray,
    w_v: np.ndarray,
    w_o: np.ndarray,
    heads: int = HEADS,
) -> np.ndarray:
    x, w_q, w_k, w_v, w_o = (a.astype(np.float64) for a in (x, w_q, w_k, w_v, w_o))
    length, hidden = x.shape
    split = (length, heads, hidden // heads)
    q, k = ((x @ w).reshape(split).transpose(1, 2, 0) for w in (w_q, w_k))
    v = (x @ w_v).reshape(split).transpose(1, 0, 2)
    context = attention_reference(q, k, v).transpose(1, 0, 2).reshape(length, hidden)
    return context @ w_o


EXAMPLE = Example("causal attention block", (attention_block,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE, lnc=2)
