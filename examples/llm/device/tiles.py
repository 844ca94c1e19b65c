"""What the kernels are made of: tiles, transposes, the two forms of a product with a weight.

A vector of n elements lies on the partitions of a tile as (P, n / P), P the largest number up to
128 that divides n. In which order is said by the view of the weight that it is contracted with:
`by_rows` puts neighbours side by side on a partition, as DMA likes it; `by_tiles` puts them on
neighbouring partitions, as the Tensor engine makes them.
"""

from __future__ import annotations

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

PMAX = 128
BANK = 512  # float32 elements per partition in a bank of PSUM
STREAM = 16 * 1024  # bytes per partition of a weight that are loaded at a time


def partitions(n):
    """The largest number of partitions that n elements fill evenly."""
    p = min(n, PMAX)
    while n % p:
        p -= 1
    return p


def share(count, cores, me):
    """Where the part of a core begins and ends."""
    return count * me // cores, count * (me + 1) // cores


def sbuf(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def hbm(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def load(view):
    tile = sbuf(view.shape, view.dtype)
    nisa.dma_copy(dst=tile, src=view)
    return tile


def load_column(vector):
    """A vector of d elements, one on each partition: (d, 1), float32."""
    d = vector.shape[0]
    tile = load(vector.reshape((d, 1)))
    wide = sbuf((d, 1), nl.float32)
    nisa.tensor_copy(dst=wide, src=tile)
    return wide


def load_repeated(vector):
    """A vector on all partitions: (128, n)."""
    return load(vector.reshape((1, vector.shape[0])).broadcast(0, PMAX))


def by_rows(weight):
    """(n, columns) in HBM as (P, n / P, columns), row r at [r // (n / P), r % (n / P)]."""
    n, columns = weight.shape
    p = partitions(n)
    return weight.reshape((p, n // p, columns))


def by_tiles(weight, p):
    """(n, columns) in HBM as (p, n / p, columns), row r at [r % p, r // p]."""
    n, columns = weight.shape
    return weight.reshape((n // p, p, columns)).permute((1, 0, 2))


def turned(tile):
    """The transpose of a tile of at most (128, 128)."""
    rows, columns = tile.shape
    on_psum = psum((columns, rows), tile.dtype)
    nisa.nc_transpose(dst=on_psum, data=tile, engine=nisa.tensor_engine)
    result = sbuf((columns, rows), tile.dtype)
    nisa.tensor_copy(dst=result, src=on_psum)
    return result


def columns_of(x, weight, width, dtype, k0=0, k1=None, op=None):
    """op(weight.T @ x), its rows in tiles of `width`: (width, columns / width, tokens).

    Weights are stationary, so the result lies as the next product contracts it.

    Args:
        x: (P, K, tokens) tile, at most 512 tokens.
        weight: (P, K, columns) view of HBM; `width` divides columns.
        dtype: of the result.
        k0, k1: the part of K that is contracted.
        op: an activation, or None.
    """
    k1 = weight.shape[1] if k1 is None else k1
    tokens, columns = x.shape[2], weight.shape[2]
    out = sbuf((width, columns // width, tokens), dtype)
    if k0 == k1:
        nisa.memset(dst=out, value=0.0)
        return out
    block = max(1, min(BANK // width, 4 * BANK // room(tokens))) * width
    depth = max(1, STREAM // (block * weight.dtype.itemsize))
    for n0 in range(0, columns, block):
        breadth = min(block, columns - n0)
        j0, count = n0 // width, breadth // width
        acc = in_banks(width, count, tokens)
        for at in range(k0, k1, depth):
            end = min(at + depth, k1)
            w = load(weight[:, at:end, n0 : n0 + breadth])
            for k in range(end - at):
                for j in range(count):
                    nisa.nc_matmul(
                        dst=acc[:, j, :],
                        stationary=w[:, k, j * width : (j + 1) * width],
                        moving=x[:, at + k, :],
                    )
        if op is None:
            nisa.tensor_copy(dst=out[:, j0 : j0 + count, :], src=acc)
        else:
            nisa.activation(dst=out[:, j0 : j0 + count, :], op=op, data=acc)
    return out


def room(n):
    """The smallest power of two, up to a bank, that n elements fit into."""
    found = BANK
    while found // 2 >= n:
        found //= 2
    return found


def in_banks(rows, count, n):
    """(rows, count, n) float32 in PSUM, none of `count` in two banks: a product writes to one."""
    return psum((rows, count, room(n) if count > 1 else n))[:, :, 0:n]


def rows_of(x, weight, out, n0, n1):
    """out[:, n0:n1] = x.T @ weight[:, n0:n1], tokens on partitions.

    Args:
        x: (P, K, tokens) tile, at most 512 tokens.
        weight: (P, K, columns) view of HBM.
        out: (tokens, columns) in HBM.
    """
    for at in range(n0, n1, BANK):
        end = min(at + BANK, n1)
        store_rows(out, at, end, product(x, (weight[:, :, at:end],)))


def product(x, weights):
    """x.T @ weights, which follow each other: tokens on partitions, (128, tokens / 128, n) in PSUM.

    Args:
        x: (P, K, tokens) tile.
        weights: views (P, part of K, n) of HBM, n at most 512.
    """
    tokens, n = x.shape[2], weights[0].shape[2]
    acc = in_banks(min(tokens, PMAX), -(-tokens // PMAX), n)
    most, done = max(1, STREAM // (BANK * weights[0].dtype.itemsize)), 0
    for weight in weights:
        for k0 in range(0, weight.shape[1], most):
            w = load(weight[:, k0 : min(k0 + most, weight.shape[1]), :])
            for k in range(w.shape[1]):
                for t0 in range(0, tokens, PMAX):
                    height = min(PMAX, tokens - t0)
                    nisa.nc_matmul(
                        dst=acc[0:height, t0 // PMAX, :],
                        stationary=x[:, done + k, t0 : t0 + height],
                        moving=w[:, k, :],
                    )
            done += w.shape[1]
    return acc


def store_rows(out, n0, n1, tile):
    """out[:, n0:n1] = tile, tokens (128, tokens / 128, n1 - n0) on partitions."""
    for t0 in range(0, out.shape[0], PMAX):
        height = min(PMAX, out.shape[0] - t0)
        result = sbuf((height, n1 - n0), out.dtype)
        nisa.tensor_copy(dst=result, src=tile[0:height, t0 // PMAX, :])
        nisa.dma_copy(dst=out[t0 : t0 + height, n0:n1], src=result)


def sum_over_cores(partial, dtype):
    """What both cores of a rank have, added up on both, core 0's first; as dtype."""
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    total = sbuf(partial.shape, dtype)
    if cores == 1:
        nisa.tensor_copy(dst=total, src=partial)
        return total
    other = sbuf(partial.shape, partial.dtype)
    nisa.sendrecv(src=partial, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    first, second = (partial, other) if me == 0 else (other, partial)
    nisa.tensor_tensor(dst=total, data1=first, data2=second, op=nl.add)
    return total


def sum_over_ranks(partial, group):
    """The sum of the ranks' tensors in HBM; both cores have written before either goes on."""
    if group is None:
        nisa.core_barrier(data=partial, cores=(0, 1))
        return partial
    total = hbm(partial.shape, partial.dtype)
    ncc.all_reduce(srcs=[partial], dsts=[total], replica_group=group, op=nl.add)
    return total
