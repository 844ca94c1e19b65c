"""Softmax over rows: one pass over the data, with the row sum as a by-product of exp.

python examples/spmd/softmax.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def softmax(x):
    """Softmax of each row of a matrix; each core takes a part of the rows."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for block in tiles(*my_share(rows, nl.tile_size.pmax), nl.tile_size.pmax):
        r0, height = block
        tile = nl.ndarray((height, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[r0 : r0 + height, :])

        # Negated on the way out, because the Scalar engine can add a bias but not subtract one.
        minus_max = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=tile, axis=1, negate=True)

        # exp(x - max), and its row sums, in one instruction.
        exps = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=exps,
            op=nl.exp,
            data=tile,
            bias=minus_max,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        # A reciprocal per row and a product per element are cheaper than a division per element.
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=exps, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[r0 : r0 + height, :], src=tile)
    return out


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """One matrix, with values far enough from zero that leaving out the maximum would overflow."""
    shape = (300, 257) if small else (4096, 2048)
    return (100 + 30 * rng.standard_normal(shape, dtype=np.float32),)


def reference(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    exps = np.exp(wide - wide.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


EXAMPLE = Example("softmax", (softmax,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
