"""Bodies of small kernels that break a rule of a collective, or just keep it; and running them."""

import numpy as np

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.launcher.world import World

TWO = [[0, 1]]


def hbm(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def sbuf(*shape, dtype=nl.float32):
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    return tile


def written(*shape):
    tensor = hbm(*shape)
    nisa.dma_copy(dst=tensor, src=nl.zeros(shape, dtype=nl.float32, buffer=nl.sbuf))
    return tensor


def launch(body, ranks=2, platform="trn2", check="default", lnc=1):
    """Trace and run `body()` as a kernel on a world."""

    def kernel(x):
        body()
        return x

    with World(ranks, lnc, platform, "inprocess", check=check) as world:
        world.run(kernel, np.zeros((1, 1), np.float32))


def reduce(srcs, dsts, op=nl.add, group=TWO, **options):
    return lambda: ncc.all_reduce(srcs(), dsts(), group, op, **options)


def t(*shape, make=hbm, count=1, **options):
    return lambda: [make(*shape, **options) for _ in range(count)]


def variable(
    name="all_to_all_v", meta=(3, 2), dtype=nl.uint32, src=hbm, dst=(1, 8), group=TWO, **options
):
    """One of the `_v` operations that moves nothing, on a metadata tensor of that shape."""

    def body():
        table = nl.zeros(meta, dtype=dtype, buffer=nl.shared_hbm)
        source = src(1, 8)
        if src == hbm:
            nisa.dma_copy(dst=source, src=nl.zeros((1, 8), dtype=nl.float32, buffer=nl.sbuf))
        function = getattr(ncc, name)
        function([source], [hbm(*dst)], group, table, **options)

    return body


def sliced_metadata():
    table = nl.zeros((3, 4), dtype=nl.uint32, buffer=nl.shared_hbm)
    ncc.all_to_all_v([hbm(1, 8)], [hbm(1, 8)], TWO, table[:, 0:2])
