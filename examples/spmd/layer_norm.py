"""LayerNorm with the Vector engine's statistics instructions, bn_stats and bn_aggr.

python examples/spmd/layer_norm.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

EPSILON = 1e-5


@nki.jit
def layer_norm(x, weight, bias):
    """(x - mean) / sqrt(variance + epsilon) * weight + bias over rows."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    weights, biases = on_all_partitions(weight), on_all_partitions(bias)
    for block in tiles(*my_share(rows, nl.tile_size.pmax), nl.tile_size.pmax):
        r0, height = block
        tile = nl.ndarray((height, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r0 : r0 + height, :])
        moments = row_moments(tile)
        mean, scale = moments[:, 0:1], moments[:, 1:2]
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale, bias=EPSILON)

        # Two operations of a tensor_scalar cost as much as one.
        normal = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=normal, data=tile, op0=nl.subtract, operand0=mean, op1=nl.multiply, operand1=scale
        )
        nisa.tensor_tensor(dst=normal, data1=normal, data2=weights[0:height, :], op=nl.multiply)
        nisa.tensor_tensor(dst=tile, data1=normal, data2=biases[0:height, :], op=nl.add)
        nisa.dma_copy(dst=out[r0 : r0 + height, :], src=tile)
    return out


def on_all_partitions(vector):
    """A vector in HBM, repeated on all partitions of a new SBUF tile."""
    n, pmax = vector.shape[0], nl.tile_size.pmax
    tile = nl.ndarray((pmax, n), dtype=vector.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=vector.reshape((1, n)).broadcast(0, pmax))
    return tile


def row_moments(tile):
    """Mean and variance of each row, as a (rows, 2) tile."""
    height, columns = tile.shape
    # bn_stats takes at most 512 columns and leaves six numbers; bn_aggr merges any count of them.
    pieces = tiles(0, columns, nl.tile_size.bn_stats_fmax)
    statistics = nl.ndarray((height, 6 * len(pieces)), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(len(pieces)):
        c0, width = pieces[i]
        nisa.bn_stats(dst=statistics[:, 6 * i : 6 * i + 6], data=tile[:, c0 : c0 + width])
    moments = nl.ndarray((height, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.bn_aggr(dst=moments, data=statistics)
    return moments


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """A matrix far from zero mean, one weight and one bias per column."""
    rows, columns = (200, 700) if small else (2048, 2048)
    x = 3 + 2 * rng.standard_normal((rows, columns), dtype=np.float32)
    weight = 1 + 0.1 * rng.standard_normal(columns, dtype=np.float32)
    return x, weight, rng.standard_normal(columns, dtype=np.float32)


def reference(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * weight + bias


EXAMPLE = Example("LayerNorm", (layer_norm,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
