"""SwiGLU's gate, silu(gate) * up, and its gradients."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import combine, load, my_tiles, output, require, sbuf
from nki_dist.launcher.kernel import jit


@jit
def swiglu(gate, up):
    """silu(gate) * up, element by element.

    Args:
        gate, up: matrices of one shape.

    Returns:
        Like gate, rounded once. Cores share the columns.
    """
    require(gate.shape == up.shape and len(gate.shape) == 2, f"swiglu of {gate.shape}, {up.shape}")
    out = output(gate.shape, gate.dtype)
    for at in my_tiles(gate.shape):
        g = load(gate[at])
        act = sbuf(g.shape, nl.float32)
        nisa.activation(dst=act, op=nl.silu, data=g)
        nisa.dma_copy(dst=out[at], src=combine(act, load(up[at]), nl.multiply, gate.dtype))
    return out


@jit
def swiglu_backward(gate, up, dy):
    """Gradients of swiglu: dy * up * silu'(gate), and dy * silu(gate).

    Returns:
        dgate, dup, like gate and up. Cores share the columns.
    """
    require(
        gate.shape == up.shape == dy.shape and len(gate.shape) == 2,
        f"swiglu_backward of {gate.shape}, {up.shape} and {dy.shape}",
    )
    dgate, dup = output(gate.shape, gate.dtype), output(up.shape, up.dtype)
    for at in my_tiles(gate.shape):
        g, u, d = load(gate[at]), load(up[at]), load(dy[at])
        act, slope = sbuf(g.shape, nl.float32), sbuf(g.shape, nl.float32)
        nisa.activation(dst=act, op=nl.silu, data=g)
        nisa.activation(dst=slope, op=nl.silu_dx, data=g)
        of_gate = combine(slope, u, nl.multiply)
        nisa.dma_copy(dst=dgate[at], src=combine(of_gate, d, nl.multiply, gate.dtype))
        nisa.dma_copy(dst=dup[at], src=combine(act, d, nl.multiply, up.dtype))
    return dgate, dup


__all__ = ["swiglu", "swiglu_backward"]
