"""Kernels for worlds of many ranks."""

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def add_weights(x, weights):
    """x + weights, each core its share of the rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    share = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * share, share)
    a = nl.ndarray((share, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((share, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x[mine, :])
    nisa.dma_copy(dst=b, src=weights[mine, :])
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out[mine, :], src=a)
    return out


@nki.jit
def return_weights(x, weights):
    """Writes x, returns the input it only reads."""
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=weights)
    nisa.dma_copy(dst=x, src=t)
    return weights


@nki.jit
def sum_of_ranks(x, group):
    """An all_reduce between HBM tensors, each core having copied its share."""
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    share = x.shape[0] // nl.num_programs(0)
    half = nl.ds(nl.program_id(0) * share, share)
    nisa.dma_copy(dst=mine[half, :], src=x[half, :])
    ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
    return total


@nki.jit
def count_then_meet(limit, group):
    """Counts down in a register-controlled loop, then all ranks meet."""
    mine = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=limit)
    nisa.memset(dst=one, value=1)
    counter = nisa.register_alloc()
    nisa.register_load(counter, left)

    def body(r):
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        nisa.register_load(r, left)
        return r

    nl.while_loop(counter, body)
    nisa.dma_copy(dst=mine, src=left)
    ncc.all_reduce(srcs=[mine], dsts=[out], replica_group=group, op=nl.add)
    return out


@nki.jit
def accumulate(x, rounds, group):
    """Adds the sum over all ranks to x, in place, as often as `rounds` says; returns the last sum.

    Each core does its share of the rows, and the partners of a rank meet in every round.
    """
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    share = x.shape[0] // nl.num_programs(0)
    half = nl.ds(nl.program_id(0) * share, share)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    a = nl.ndarray((share, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((share, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=rounds)
    nisa.memset(dst=one, value=1)
    counter = nisa.register_alloc()
    nisa.register_load(counter, count)

    def body(r):
        nisa.dma_copy(dst=a, src=x[half, :])
        nisa.dma_copy(dst=mine[half, :], src=a)
        ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
        nisa.dma_copy(dst=b, src=total[half, :])
        nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=0.25)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.dma_copy(dst=x[half, :], src=a)
        nisa.tensor_tensor(dst=count, data1=count, data2=one, op=nl.subtract)
        nisa.register_load(r, count)
        return r

    nl.while_loop(counter, body)
    return total
