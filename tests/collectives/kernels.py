"""Kernels of the collective tests: one operation each, in HBM or in SBUF, from x to a result."""

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl


def hbm(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def sbuf(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def staged(x, where):
    """A copy of x that a collective may use; in HBM at LNC=2, each core writes one half."""
    if where == "sbuf":
        tile = sbuf(x.shape, x.dtype)
        nisa.dma_copy(dst=tile, src=x)
        return tile
    copy, cores, me = hbm(x.shape, x.dtype), nl.num_programs(0), nl.program_id(0)
    half = (x.shape[0] + cores - 1) // cores
    rows = nl.ds(me * half, min(half, x.shape[0] - me * half))
    nisa.dma_copy(dst=copy[rows], src=x[rows])
    return copy


def result(shape, dtype, where):
    return sbuf(shape, dtype) if where == "sbuf" else hbm(shape, dtype)


def published(tensor):
    """Results by core: (cores, *shape), so that a difference between cores shows."""
    cores, me = nl.num_programs(0), nl.program_id(0)
    out = hbm((cores, *tensor.shape), tensor.dtype)
    nisa.dma_copy(dst=out[me], src=tensor)
    return out


@nki.jit
def all_reduce(x, group, op, where="hbm", in_place=False):
    src = staged(x, where)
    dst = src if in_place else result(x.shape, x.dtype, where)
    ncc.all_reduce([src], [dst], group, op)
    return published(dst)


@nki.jit
def reduce_scatter(x, group, op, parts, where="hbm", dim=0):
    src = staged(x, where)
    shape = tuple([n // parts if d == dim else n for d, n in enumerate(x.shape)])
    dst = result(shape, x.dtype, where)
    ncc.reduce_scatter([src], [dst], group, dim, op)
    return published(dst)


@nki.jit
def all_gather(x, group, parts, where="hbm", dim=0):
    src = staged(x, where)
    shape = tuple([n * parts if d == dim else n for d, n in enumerate(x.shape)])
    dst = result(shape, x.dtype, where)
    ncc.all_gather([src], [dst], group, dim)
    return published(dst)


@nki.jit
def all_to_all(x, group, where="hbm", dim=0):
    src = staged(x, where)
    dst = result(x.shape, x.dtype, where)
    ncc.all_to_all([src], [dst], group, dim)
    return published(dst)


@nki.jit
def coalesced(x, y, group, parts):
    """Two tensors of different shapes and dtypes in each operation."""
    a, b = staged(x, "hbm"), staged(y, "hbm")
    a1, b1 = hbm(x.shape, x.dtype), hbm(y.shape, y.dtype)
    ncc.all_reduce([a, b], [a1, b1], group, nl.add)
    a2, b2 = [hbm((t.shape[0] * parts, *t.shape[1:]), t.dtype) for t in (x, y)]
    ncc.all_gather([a, b], [a2, b2], group, 0)
    a3, b3 = [hbm((t.shape[0] // parts, *t.shape[1:]), t.dtype) for t in (x, y)]
    ncc.reduce_scatter([a, b], [a3, b3], group, 0, nl.maximum)
    a4, b4 = hbm(x.shape, x.dtype), hbm(y.shape, y.dtype)
    ncc.all_to_all([a, b], [a4, b4], group, 0)
    return tuple([published(t) for t in (a1, b1, a2, b2, a3, b3, a4, b4)])


@nki.jit
def permute(x, pairs, where="hbm"):
    src = staged(x, where)
    dst = result(x.shape, x.dtype, where)
    if where == "sbuf":
        nisa.memset(dst=dst, value=77)
    else:
        fill = sbuf(x.shape, x.dtype)
        nisa.memset(dst=fill, value=77)
        nisa.dma_copy(dst=dst, src=fill)
    ncc.collective_permute([src], [dst], pairs)
    return published(dst)


@nki.jit
def ring(x, group, size, channels, where="hbm"):
    """All-gather by ring steps: block r of the result is what rank r had."""
    rows = x.shape[0]
    current = [staged(x, where) for _ in range(channels)]
    out = hbm((channels, nl.num_programs(0), 64, *x.shape), x.dtype)
    me = nl.program_id(0)
    if where == "hbm":  # each core is going to read what the other has staged
        for tensor in current:
            nisa.core_barrier(data=tensor, cores=(0, 1))
    for step in range(size):
        for c in range(channels):
            rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group, c)
            block = current[c]
            if where == "hbm":
                block = sbuf(x.shape, x.dtype)
                nisa.dma_copy(dst=block, src=current[c])
            nisa.dma_copy(dst=out[c, me].select(0, rank), src=block)
        if step == size - 1:
            break
        following = [result(x.shape, x.dtype, where) for _ in range(channels)]
        ncc.collective_permute_implicit(
            [[t] for t in current], [[t] for t in following], group, list(range(channels))
        )
        current = following
    assert rows == x.shape[0]
    return out


@nki.jit
def ring_in_dynamic_loop(x, group, size):
    """The same with a run-time loop, so that the iteration is a register too."""
    a, b = sbuf(x.shape, x.dtype), sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=a, src=x)
    out = hbm((size, *x.shape), x.dtype)
    for step in nl.dynamic_range(size):
        rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)
        nisa.dma_copy(dst=out.select(0, rank), src=a)
        ncc.collective_permute_implicit([[a]], [[b]], group)
        nisa.tensor_copy(dst=a, src=b)
    return out


@nki.jit
def ring_reduce(x, y, group, op, where="hbm"):
    a, b = staged(x, where), staged(y, where)
    dst = result(x.shape, x.dtype, where)
    ncc.collective_permute_implicit_reduce([[a]], [[b]], [[dst]], group, op)
    return published(dst)


def _metadata(meta, where):
    if where == "hbm":
        copy = hbm(meta.shape, meta.dtype)
        nisa.dma_copy(dst=copy, src=meta)
        return copy
    tile = sbuf((1, *meta.shape), meta.dtype)
    nisa.dma_copy(dst=tile, src=meta.reshape((1, *meta.shape)))
    return tile


@nki.jit
def variable(x, out_shape, meta, group, gather, where="hbm", known=False, displs=False):
    """all_gather_v or all_to_all_v; returns dst, filled with 77 before, and the metadata."""
    src = staged(x, "hbm")
    fill = sbuf((1, out_shape), x.dtype)
    nisa.memset(dst=fill, value=77)
    dst = hbm((1, out_shape), x.dtype)
    nisa.dma_copy(dst=dst, src=fill)
    table = _metadata(meta, where)
    operation = ncc.all_gather_v if gather else ncc.all_to_all_v
    operation([src], [dst], group, table, recv_counts_known=known, has_rdispls=displs)
    cores, me = nl.num_programs(0), nl.program_id(0)
    counts = hbm((cores, *meta.shape), meta.dtype)
    nisa.dma_copy(dst=counts[me], src=table)
    return published(dst), counts


@nki.jit
def private(x, group, parts):
    """Tensors in private HBM belong to the core, as those in SBUF do."""
    me = nl.program_id(0)
    src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    tile = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(100 * me))
    nisa.dma_copy(dst=src, src=tile)
    dst = nl.ndarray((x.shape[0] * parts, x.shape[1]), dtype=x.dtype, buffer=nl.private_hbm)
    ncc.all_gather([src], [dst], group, 0)
    return published(dst)


@nki.jit
def halves_then_reduce(x, group):
    """Core c adds 100 to its half only; the collective sees both halves, without a barrier."""
    me, cores = nl.program_id(0), nl.num_programs(0)
    half = x.shape[0] // cores
    src, dst = hbm(x.shape, x.dtype), hbm(x.shape, x.dtype)
    t = sbuf((half, x.shape[1]), x.dtype)
    nisa.dma_copy(dst=t, src=x[nl.ds(me * half, half)])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=100.0 * (me + 1))
    nisa.dma_copy(dst=src[nl.ds(me * half, half)], src=t)
    ncc.all_reduce([src], [dst], group, nl.add)
    u = sbuf((half, x.shape[1]), x.dtype)
    nisa.dma_copy(dst=u, src=dst[nl.ds((cores - 1 - me) * half, half)])
    out = hbm(x.shape, x.dtype)
    nisa.dma_copy(dst=out[nl.ds((cores - 1 - me) * half, half)], src=u)
    return out
