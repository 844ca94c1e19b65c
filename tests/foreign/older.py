"""Kernels of our own in the language of Beta 1, as the documentation's examples of it are."""

import numpy as np

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from tests.foreign.written import Written, whole


def transposes(x):
    """By DMA, from HBM."""
    tile = nisa.dma_transpose(x[:, :])
    out = nl.ndarray((12, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.ndarray((12, 8), dtype=x.dtype, buffer=nl.hbm)
    nl.store(kept, tile)
    nl.store(out, nl.load(kept))
    return out


def computes(x):
    """Functions of nl, and a dropout that keeps everything."""
    out = nl.ndarray((8, 8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    assert nl.tile_size.pmax == 128
    tile = nl.load(x)
    kept = nisa.dropout(tile, prob=0.0)
    nl.store(out[0], nl.sqrt(kept))
    nl.store(out[1], nl.rsqrt(kept))
    nl.store(out[2], nl.square(kept))
    nl.store(out[3], nl.subtract(kept, 1.0))
    nl.store(out[4], nl.log(kept))
    nl.store(out[5], nl.silu(kept))
    nl.store(out[6], nl.divide(kept, nl.mean(kept, axis=1, keepdims=True)))
    turned = nisa.nc_transpose(kept, engine=nisa.tensor_engine)
    nl.store(out[7], nisa.nc_transpose(nl.copy(turned), engine=nisa.tensor_engine))
    return out


def computed(x):
    gated, mean = x / (1 + np.exp(-x)), x.mean(1, keepdims=True)
    return np.stack([np.sqrt(x), 1 / np.sqrt(x), x * x, x - 1, np.log(x), gated, x / mean, x])


def gathers(x, index):
    """Rows of 16 partitions share their indices."""
    tile, rows = nl.load(x), nl.load(index)
    found = nisa.local_gather(tile, rows, 1, 16)
    out = nl.ndarray((16, 1, 16, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, found)
    return out


def selects(x, bounds):
    """By ranges of columns, and by a predicate; the largest of each row beside them."""
    tile, limits = nl.load(x), nl.load(bounds)
    low, high = limits[:, 0:1], limits[:, 1:2]
    out = nl.ndarray((2, 8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    tops = nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    top = nl.ndarray((8, 1), dtype=x.dtype, buffer=nl.sbuf)
    inside = nisa.range_select(
        on_true_tile=tile,
        comp_op0=np.greater_equal,
        comp_op1=np.less,
        bound0=low,
        bound1=high,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=top,
        reduce_op=np.max,
        on_false_value=nl.fp32.min,
    )
    predicate = nl.greater(tile, 3.0, dtype=nl.uint8)
    chosen = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.select_reduce(dst=chosen, predicate=predicate, on_true=tile, on_false=-1.0)
    nl.store(out[0], nl.maximum(inside, 0.0))
    nl.store(out[1], chosen)
    nl.store(tops, top)
    return out, tops


def selected(x, bounds):
    columns = np.arange(12)[None, :]
    inside = (columns >= bounds[:, :1]) & (columns < bounds[:, 1:])
    both = np.stack([np.where(inside, x, 0), np.where(x > 3, x, -1)])
    return both, np.where(inside, x, 0).max(1, keepdims=True)


def counts_up(x):
    """Running sums of twice the elements, and where runs of equal elements begin and end."""
    tile = nl.load(x)
    sums = nl.ndarray((1, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar_cumulative(
        src=tile, dst=sums, op0=np.multiply, op1=np.add, imm0=2.0, imm1=0.0
    )
    out = nl.ndarray((1, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    runs = nl.ndarray((1, 2, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, sums)
    nl.store(runs, nisa.sequence_bounds(segment_ids=tile))
    return out, runs


def counted_up(x):
    row = x[0]
    first = [next(k for k in range(12) if row[k] == v) for v in row]
    last = [max(k for k in range(12) if row[k] == v) + 1 for v in row]
    return np.cumsum(2 * x, axis=1), np.array([[first, last]])


def _wanted(x, index):
    return x[:, index[:, 0].astype(int)].reshape(16, 1, 16, 1)


def reads(x, index):
    """Reads in other orders and by indices, in bounds and with their modes named."""
    indices = nl.load(index)
    turned = nl.load_transpose2d(x)
    assert indices.dtype == nl.uint32
    taken = nl.gather_flattened(nl.load(x), indices)
    small = nl.copy(taken, dtype=nl.float8_e5m2)
    out = nl.ndarray((8, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    other = nl.ndarray((12, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    kept = nl.empty_like(turned)
    kept[...] = nl.copy(turned)
    rows, columns = nl.arange(12)[:, None], nl.arange(8)[None, :]
    nisa.dma_copy(
        dst=other[rows, columns],
        src=kept[rows, columns],
        dge_mode=nisa.dge_mode.none,
        oob_mode=nisa.oob_mode.error,
    )
    nl.device_print("taken", taken)
    nl.store(out, small)
    return out, other


OLDER = {
    "reads": Written(
        reads,
        (whole(8, 12), np.array([[3, 0, 11, 3]] * 8, np.uint32)),
        lambda x, index: (np.take_along_axis(x, index.astype(int), axis=1), x.T),
        beta1=True,
    ),
    "transposes": Written(transposes, (whole(8, 12, dtype=np.float16),), lambda x: x.T, beta1=True),
    "computes": Written(computes, (whole(8, 12),), computed, tolerance=1e-2, beta1=True),
    "gathers": Written(
        gathers,
        (whole(16, 20), np.random.default_rng(3).integers(0, 20, (16, 1)).astype(np.uint16)),
        _wanted,
        beta1=True,
    ),
    "selects": Written(
        selects,
        (
            whole(8, 12),
            np.array([[2, 9]] * 8, np.float32) + np.arange(8, dtype=np.float32)[:, None] / 4 // 1,
        ),
        selected,
        beta1=True,
    ),
    "counts_up": Written(counts_up, (np.sort(whole(1, 12), axis=1),), counted_up, beta1=True),
}
