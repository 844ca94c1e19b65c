"""RMSNorm, its gradient, and RMSNorm fused with the QKV projection."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import (
    activation_sums,
    combine,
    fused,
    load,
    load_row,
    load_tiles,
    my_rows,
    output,
    programs,
    psum,
    require,
    row_sums,
    sbuf,
    sum_over_cores,
    tiles,
    times,
    turned_tiles,
)
from nki_dist.launcher.kernel import jit


@jit
def rms_norm(x, weight, eps=1e-6):
    """x / sqrt(mean(x**2) + eps) * weight over rows.

    Args:
        x: (rows, hidden).
        weight: (hidden,).
        eps: added to the mean of squares.

    Returns:
        Like x. Statistics are float32; cores share the rows.
    """
    _check(x, weight)
    out = output(x.shape, x.dtype)
    weights = load_row(weight)
    for r0, height in my_rows(x.shape[0]):
        tile = load(x[r0 : r0 + height, :])
        normalised = normalise(tile, weights, eps)
        nisa.dma_copy(dst=out[r0 : r0 + height, :], src=normalised)
    return out


@jit
def rms_norm_backward(x, weight, dy, eps=1e-6):
    """Gradients of rms_norm.

    With r = 1 / sqrt(mean(x**2) + eps): dx = r * (dy * weight - x * r**2 * mean(x * dy * weight)),
    and dweight is the sum of x * r * dy over rows.

    Returns:
        dx like x, dweight (hidden,) in float32.
    """
    _check(x, weight)
    require(x.shape == dy.shape, f"got x {x.shape} and dy {dy.shape}")
    hidden = x.shape[1]
    dx, dweight = output(x.shape, x.dtype), output((hidden,), nl.float32)
    weights = load_row(weight)
    total = sbuf((1, hidden), nl.float32)
    nisa.memset(dst=total, value=0.0)
    for r0, height in my_rows(x.shape[0]):
        rows = slice(r0, r0 + height)
        gradient, part = _backward_tile(load(x[rows, :]), weights, load(dy[rows, :]), eps)
        nisa.dma_copy(dst=dx[rows, :], src=gradient)
        _add_columns(total, part)
    total = sum_over_cores(total)
    if programs()[1] == 0:
        nisa.dma_copy(dst=dweight.reshape((1, hidden)), src=total)
    return dx, dweight


@jit
def rmsnorm_qkv(x, norm_weight, qkv_weight, eps=1e-6):
    """rms_norm(x, norm_weight) @ qkv_weight, without the normalised rows ever leaving SBUF.

    Args:
        x: (rows, hidden).
        norm_weight: (hidden,).
        qkv_weight: (hidden, columns): the three projections side by side.
        eps: as of rms_norm.

    Returns:
        (rows, columns) like x. Cores share the rows.
    """
    _check(x, norm_weight)
    hidden, columns = qkv_weight.shape
    require(hidden == x.shape[1], f"got x {x.shape} and qkv_weight {qkv_weight.shape}")
    out = output((x.shape[0], columns), x.dtype)
    _project(out, x, load_row(norm_weight), qkv_weight, eps)
    return out


@jit
def allocated_fused_rms_norm_qkv(hidden, weights, norm_dtype=None, eps=1e-6):
    """rms_norm(hidden) @ weights under its Beta 1 name: no weights of the norm, a batch dimension.

    Memory is placed by the compiler here, whatever the name says.

    Args:
        hidden: (batch, sequence, dim).
        weights: (dim, columns).
        norm_dtype: accepted, no effect: statistics are float32.
        eps: added to the mean of squares.

    Returns:
        (batch, sequence, columns) like hidden. Programs share the rows.
    """
    require(
        len(hidden.shape) == 3 and weights.shape[0] == hidden.shape[2],
        f"got hidden {hidden.shape} and weights {weights.shape}; allowed (batch, sequence, dim) "
        "and (dim, columns)",
    )
    batch, sequence, dim = hidden.shape
    out = output((batch, sequence, weights.shape[1]), hidden.dtype)
    dst = out.reshape((-1, weights.shape[1]))
    _project(dst, hidden.reshape((-1, dim)), None, weights, eps)
    return out


def _project(dst, x, norm_weights, projection, eps):
    """dst = normalised x @ projection; programs share the rows."""
    columns = load_tiles(projection)
    for r0, height in my_rows(x.shape[0]):
        normalised = normalise(load(x[r0 : r0 + height, :]), norm_weights, eps)
        times(turned_tiles(normalised), columns, dst[r0 : r0 + height, :])


def inverse_rms(tile, eps):
    """(rows, 1) float32 tile of 1 / sqrt(mean(x**2) + eps)."""
    squares, result = sbuf(tile.shape, nl.float32), sbuf((tile.shape[0], 1), nl.float32)
    activation_sums(squares, result, nl.square, tile)
    # Scale and bias come free with the activation.
    nisa.activation(dst=result, op=nl.rsqrt, data=result, scale=1.0 / tile.shape[1], bias=eps)
    return result


def normalise(tile, weights, eps):
    """A new tile of normalised rows, rounded once; no weights for None."""
    result = sbuf(tile.shape, tile.dtype)
    if weights is None:
        nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply, operand0=inverse_rms(tile, eps))
        return result
    fused(result, tile, inverse_rms(tile, eps), nl.multiply, weights[0 : tile.shape[0], :])
    return result


def _backward_tile(tile, weights, gradient, eps):
    """dx of a tile of rows, and the rows that dweight is the column sum of."""
    height, hidden = tile.shape
    r = inverse_rms(tile, eps)
    scaled = sbuf(tile.shape, nl.float32)
    nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=r)
    weighted = combine(gradient, weights[0:height, :], nl.multiply, nl.float32)
    mean = row_sums(combine(scaled, weighted, nl.multiply))
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=-1.0 / hidden)
    dx, inner = sbuf(tile.shape, tile.dtype), sbuf(tile.shape, nl.float32)
    fused(inner, scaled, mean, nl.add, weighted)
    nisa.tensor_scalar(dst=dx, data=inner, op0=nl.multiply, operand0=r)
    return dx, combine(scaled, gradient, nl.multiply)


def _add_columns(total, rows):
    """Add the sum of each column to a (1, columns) tile; partitions are summed by a matmul."""
    ones = sbuf((rows.shape[0], 1), nl.float32)
    nisa.memset(dst=ones, value=1.0)
    for c0, width in tiles(0, rows.shape[1], nl.tile_size.gemm_moving_fmax):
        sums = psum((1, width))
        nisa.nc_matmul(dst=sums, stationary=ones, moving=rows[:, c0 : c0 + width])
        here = total[:, c0 : c0 + width]
        nisa.tensor_tensor(dst=here, data1=here, data2=sums, op=nl.add)


def _check(x, weight):
    require(
        len(x.shape) == 2 and weight.shape == x.shape[1:],
        f"rms_norm takes x (rows, hidden) and weight (hidden,), got {x.shape} and {weight.shape}",
    )


__all__ = ["allocated_fused_rms_norm_qkv", "rms_norm", "rms_norm_backward", "rmsnorm_qkv"]
