"""What the programs of this folder launch, and whether a launch gave what it should."""

from __future__ import annotations

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

RANKS = 2
GROUP = ncc.ReplicaGroup([list(range(RANKS))])
XS = [np.arange(24, dtype=np.float32).reshape(4, 6) + 7 * rank for rank in range(RANKS)]
TOTAL = sum(XS)


@nki.jit
def scaled(x, ballast, scale, group):
    """The sum of all ranks' x times a constant; whatever ballast is, it lies in the stack, too."""
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    first = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=first, src=ballast[0:1, 0:1])
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(scale))
    nisa.dma_copy(dst=mine, src=tile)
    ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
    return total


@nki.jit
def counted(x, rounds, group):
    """x plus the sum of all ranks' x, as often as `rounds` says at run time."""
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=mine, src=tile)
    nisa.dma_copy(dst=count, src=rounds[0:1, 0:1])
    nisa.memset(dst=one, value=1)
    register = nisa.register_alloc()
    nisa.register_load(register, count)

    def body(r):
        ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
        nisa.dma_copy(dst=other, src=total)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
        nisa.tensor_tensor(dst=count, data1=count, data2=one, op=nl.subtract)
        nisa.register_load(r, count)
        return r

    nl.while_loop(register, body)
    nisa.dma_copy(dst=total, src=tile)
    return total


class Wrong(Exception):
    """A launch gave something else than it should."""


def launch(world: nki.World, scale: int = 3, ballast: int = 1) -> None:
    """Launch `scaled` and compare.

    Args:
        ballast: megabytes that each rank's stack gets beside.
    """
    rows = np.ones((ballast, 1 << 18), np.float32)
    outs = world.run(scaled, nki.per_rank(XS), nki.per_rank([rows, rows + 1]), scale, GROUP)
    for out in outs:
        if not np.array_equal(out, scale * TOTAL):
            raise Wrong(f"scaled by {scale}: {out.tolist()}; should be {(scale * TOTAL).tolist()}")


def compiled(world: nki.World, scale: int, ballast: int) -> None:
    """Have `launch` with these arguments compile nothing."""
    rows = np.ones((ballast, 1 << 18), np.float32)
    world.compile(scaled, nki.per_rank(XS), nki.per_rank([rows, rows + 1]), scale, GROUP)


def launch_long(world: nki.World, rounds: int) -> None:
    """Launch `counted` and compare."""
    # Of each rank its own: what all have in common would be mapped anew whenever kernels alternate.
    counts = nki.per_rank([np.array([[rounds, rank]], np.int32) for rank in range(RANKS)])
    outs = world.run(counted, nki.per_rank(XS), counts, GROUP)
    for x, out in zip(XS, outs):
        if not np.array_equal(out, x + rounds * TOTAL):
            raise Wrong(f"{rounds} rounds gave {out.tolist()}")


def verdict_of(error: BaseException | None) -> str:
    """What an attempt came to, in a word."""
    if error is None:
        return "right"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, errors.NkiError):
        return "typed"
    return "wrong" if isinstance(error, Wrong) else "untyped"
