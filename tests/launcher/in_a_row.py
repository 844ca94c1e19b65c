"""Kernels that follow each other, and the launches of a world of two ranks that sessions get."""

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

GROUP = ncc.ReplicaGroup([[0, 1]])


@nki.jit
def projected(x, w):
    """x.T @ w, in float32."""
    total = nl.ndarray((x.shape[1], w.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=nl.load(x), moving=nl.load(w))
    tile = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    out = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def summed(x, group):
    """x, added over the ranks."""
    local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=local, src=x)
    ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
    return out


@nki.jit
def raised(x, rounds):
    """x + 1 as often as the first element of `rounds` says."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, count = nl.load(x), nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=rounds)
    times = nisa.register_alloc()
    nisa.register_load(times, count)
    for _ in nl.dynamic_range(times):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(out, tile)
    return out


def rows(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Launched:
    """A launch that was made with `profile=True`: what a world would tell sessions of it."""

    def __init__(self, world, name, kernel, *args):
        self.name, self.compiled = name, world.compile(kernel, *args)
        run = world.run(kernel, *args, profile=True)
        self.reports, self.profile, self.outputs = run.reports, run.profile, run.outputs

    def into(self, session, programs=None):
        session.add(self.name, self.compiled, self.reports, programs)


def launched(world):
    """A product, its sum over the ranks, and a product of other shapes, each once."""
    product = Launched(world, "projected", projected, rows(1, 96, 40), rows(2, 96, 300))
    other = Launched(world, "projected", projected, rows(3, 128, 64), rows(4, 128, 512))
    return product, Launched(world, "summed", summed, nki.per_rank(product.outputs), GROUP), other
