"""A two-layer MLP, act(x @ w_up) @ w_down, and its gradients, each in one kernel."""

from __future__ import annotations

from types import MappingProxyType

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import (
    combine,
    contract,
    load_tiles,
    matmul_into,
    my_rows,
    output,
    require,
    sbuf,
    tiles,
    times,
)
from nki_dist.launcher.kernel import jit

# name -> the function and its derivative, as the Scalar engine has them
ACTIVATIONS = MappingProxyType({"gelu": (nl.gelu, nl.gelu_dx), "silu": (nl.silu, nl.silu_dx)})


@jit
def mlp(x, w_up, w_down, activation="gelu"):
    """act(x @ w_up) @ w_down.

    Args:
        x: (rows, hidden).
        w_up: (hidden, intermediate).
        w_down: (intermediate, hidden).
        activation: "gelu" or "silu".

    Returns:
        (rows, hidden) like x. Cores share the rows; what lies between the layers stays in SBUF.
    """
    function, _ = _check(x, w_up, w_down, activation)
    out = output(x.shape, x.dtype)
    up, down = load_tiles(w_up), load_tiles(w_down)
    for r0, height in my_rows(x.shape[0]):
        x_turned = load_tiles(x[r0 : r0 + height, :], transpose=True)
        # Turned as it comes out of the first layer, it's just what the second one contracts.
        middle = []
        for before in _layer(up, x_turned):
            after = sbuf(before.shape, x.dtype)
            nisa.activation(dst=after, op=function, data=before)
            middle.append(after)
        times(middle, down, out[r0 : r0 + height, :])
    return out


@jit
def mlp_backward(x, w_up, w_down, dy, activation="gelu"):
    """Gradients of mlp, which computes its first layer anew instead of keeping it.

    Cores share the rows for dx; then, when all rows of what lies between the layers are in
    shared_hbm, they share the rows of the weights' gradients.

    Returns:
        dx, dw_up, dw_down, like x, w_up and w_down.
    """
    functions = _check(x, w_up, w_down, activation)
    require(x.shape == dy.shape, f"got x {x.shape} and dy {dy.shape}")
    rows, inner = x.shape[0], w_up.shape[1]
    dx, dw_up, dw_down = (output(t.shape, t.dtype) for t in (x, w_up, w_down))
    middle, dmiddle = output((inner, rows), x.dtype), output((inner, rows), x.dtype)
    up, down_turned = load_tiles(w_up), load_tiles(w_down, transpose=True)
    up_turned = load_tiles(w_up, transpose=True)
    for r0, height in my_rows(rows):
        span = slice(r0, r0 + height)
        x_turned, dy_turned = (load_tiles(t[span, :], transpose=True) for t in (x, dy))
        pairs = zip(_layer(up, x_turned), _layer(down_turned, dy_turned), strict=True)
        gradients = []
        for (i0, width), (before, dafter) in zip(
            tiles(0, inner, nl.tile_size.pmax), pairs, strict=True
        ):
            after, dbefore = _through(before, dafter, functions, x.dtype)
            nisa.dma_copy(dst=middle[i0 : i0 + width, span], src=after)
            nisa.dma_copy(dst=dmiddle[i0 : i0 + width, span], src=dbefore)
            gradients.append(dbefore)
        times(gradients, up_turned, dx[span, :])
    for shared in (middle, dmiddle):
        nisa.core_barrier(data=shared, cores=(0, 1))
    matmul_into(dw_up, x, dmiddle, transpose_lhs=True, transpose_rhs=True)
    matmul_into(dw_down, middle, dy)
    return dx, dw_up, dw_down


def _layer(weight, moving):
    """weight.T @ moving in PSUM, 128 rows at a time."""
    for i0, width in tiles(0, weight[0].shape[1], nl.tile_size.pmax):
        yield contract([tile[:, i0 : i0 + width] for tile in weight], moving)


def _through(before, dafter, functions, dtype):
    """act(before), and the gradient before the activation."""
    function, derivative = functions
    after, slope = sbuf(before.shape, dtype), sbuf(before.shape, nl.float32)
    nisa.activation(dst=after, op=function, data=before)
    nisa.activation(dst=slope, op=derivative, data=before)
    return after, combine(slope, dafter, nl.multiply, dtype)


def _check(x, w_up, w_down, activation):
    require(
        len(x.shape) == 2 and w_up.shape[0] == x.shape[1] and w_down.shape == w_up.shape[::-1],
        "mlp takes x (rows, hidden), w_up (hidden, intermediate) and w_down (intermediate, "
        f"hidden), got {x.shape}, {w_up.shape} and {w_down.shape}",
    )
    require(
        activation in ACTIVATIONS,
        f"activation={activation!r}; allowed: {', '.join(ACTIVATIONS)}",
    )
    return ACTIVATIONS[activation]


__all__ = ["mlp", "mlp_backward"]
