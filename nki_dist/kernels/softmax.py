"""Softmax over rows, and its gradient."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import (
    activation_sums,
    combine,
    fused,
    load,
    my_rows,
    output,
    require,
    row_sums,
    sbuf,
)
from nki_dist.launcher.kernel import jit


@jit
def softmax(x):
    """exp(x - max) / sum(exp(x - max)) of each row of a matrix; cores share the rows."""
    require(len(x.shape) == 2, f"softmax takes (rows, columns), got {x.shape}")
    out = output(x.shape, x.dtype)
    for r0, height in my_rows(x.shape[0]):
        tile = load(x[r0 : r0 + height, :])
        # Negated on the way out, because the Scalar engine can add a bias but not subtract one.
        minus_max, total = sbuf((height, 1), nl.float32), sbuf((height, 1), nl.float32)
        nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=tile, axis=1, negate=True)
        exps = sbuf(tile.shape, nl.float32)
        activation_sums(exps, total, nl.exp, tile, bias=minus_max)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=exps, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[r0 : r0 + height, :], src=tile)
    return out


@jit
def softmax_backward(y, dy):
    """Gradient of softmax: y * (dy - sum(y * dy)) of each row, from its result y."""
    require(y.shape == dy.shape and len(y.shape) == 2, f"got y {y.shape} and dy {dy.shape}")
    dx = output(y.shape, y.dtype)
    for r0, height in my_rows(y.shape[0]):
        value, gradient = load(y[r0 : r0 + height, :]), load(dy[r0 : r0 + height, :])
        total = row_sums(combine(value, gradient, nl.multiply, nl.float32))
        fused(value, gradient, total, nl.multiply, value, op0=nl.subtract)
        nisa.dma_copy(dst=dx[r0 : r0 + height, :], src=value)
    return dx


__all__ = ["softmax", "softmax_backward"]
