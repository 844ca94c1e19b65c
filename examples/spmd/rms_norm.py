"""RMSNorm in bfloat16: statistics in float32, one rounding at the end.

python examples/spmd/rms_norm.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

EPSILON = 1e-6


@nki.jit
def rms_norm(x, weight):
    """x / sqrt(mean(x**2) + epsilon) * weight over rows; each core takes a part of the rows."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    pmax = nl.tile_size.pmax

    # Engines can't broadcast along partitions; the DMA engine can, by reading the row 128 times.
    weights = nl.ndarray((pmax, columns), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=weight.reshape((1, columns)).broadcast(0, pmax))

    for block in tiles(*my_share(rows, pmax), pmax):
        r0, height = block
        tile = nl.ndarray((height, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r0 : r0 + height, :])

        squares = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        scale = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=squares,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=scale,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        # rsqrt(sum / columns + epsilon): scale and bias come free with the activation.
        nisa.activation(dst=scale, op=nl.rsqrt, data=scale, scale=1.0 / columns, bias=EPSILON)
        nisa.scalar_tensor_tensor(
            dst=tile,
            data=tile,
            op0=nl.multiply,
            operand0=scale,
            op1=nl.multiply,
            operand1=weights[0:height, :],
        )
        nisa.dma_copy(dst=out[r0 : r0 + height, :], src=tile)
    return out


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """A bfloat16 matrix and one weight per column."""
    rows, columns = (200, 300) if small else (2048, 2048)
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    weight = 1 + 0.1 * rng.standard_normal(columns, dtype=np.float32)
    return x.astype(ml_dtypes.bfloat16), weight.astype(ml_dtypes.bfloat16)


def reference(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    mean = (wide**2).mean(axis=1, keepdims=True)
    return wide / np.sqrt(mean + EPSILON) * weight.astype(np.float64)


EXAMPLE = Example("RMSNorm", (rms_norm,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
