"""RMSNorm: of one token that lies on all partitions, of rows, of heads."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl

from .tiles import PMAX, hbm, load, load_repeated, partitions, psum, sbuf
from .with_library import library_norm


def sum_over_partitions(tile):
    """The sums of a float32 tile's columns, on each partition: (P, n) in PSUM, n at most 512."""
    p, n = tile.shape
    ones, total = sbuf((p, p), nl.float32), psum((p, n))
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=total, stationary=ones, moving=tile)
    return total


def inverse_rms(squares, count, eps):
    """1 / sqrt(squares / count + eps), a float32 tile."""
    result, bias = sbuf(squares.shape, nl.float32), sbuf((squares.shape[0], 1), nl.float32)
    nisa.memset(dst=bias, value=eps)  # a tile, because trn1 takes no number
    nisa.activation(dst=result, op=nl.rsqrt, data=squares, scale=1.0 / count, bias=bias)
    return result


def norm_column(x, weight, shape):
    """One token: x (P, n) tile by rows, weight (P * n,) in HBM; like x, as (P, n, 1)."""
    p, n = x.shape
    if "rmsnorm_tkg" in shape["library"]:
        return library_norm(x.reshape((p, 1, n)), weight, shape).reshape((p, n, 1))
    return normed(x, load(weight.reshape((p, n))), shape["eps"], True).reshape((p, n, 1))


def norm_rows(x, weights, eps):
    """Each row of a tile (rows, n); weights (128, n) as `load_repeated` gives them."""
    return normed(x, weights[0 : x.shape[0], :], eps, False)


def normed(x, weights, eps, across):
    """Each row of a tile, or with `across` all of it as one vector, times weights like x."""
    out, sums = sbuf(x.shape, x.dtype), sbuf((x.shape[0], 1), nl.float32)
    nisa.activation(
        dst=out,  # nobody needs the squares
        op=nl.square,
        data=x,
        reduce_op=nl.add,
        reduce_res=sums,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )
    count = x.shape[1]
    if across:
        sums, count = sum_over_partitions(sums), x.shape[0] * count
    nisa.scalar_tensor_tensor(
        dst=out,
        data=x,
        op0=nl.multiply,
        operand0=inverse_rms(sums, count, eps),
        op1=nl.multiply,
        operand1=weights,
    )
    return out


def normalised(x, weight, shape, own):
    """Rows of HBM after a norm; each core has its own, and both have met."""
    found, weights = hbm(x.shape, x.dtype), None
    if "rmsnorm_tkg" not in shape["library"]:
        weights = load_repeated(weight)
    for span in own:
        t0, t1 = span
        if weights is None:
            turned = library_norm(x[t0:t1, :], weight, shape)
            place = found[t0:t1, :].reshape((t1 - t0, PMAX, x.shape[1] // PMAX))
            nisa.dma_copy(dst=place.permute((1, 0, 2)), src=turned)
        else:
            rows = norm_rows(load(x[t0:t1, :]), weights, shape["eps"])
            nisa.dma_copy(dst=found[t0:t1, :], src=rows)
    nisa.core_barrier(data=found, cores=(0, 1))
    return found


def turned_rows(x, t0, t1, weight, shape):
    """Rows t0 to t1 of x (tokens, n) in HBM, by rows of n: (P, n / P, t1 - t0) tile.

    Args:
        weight: of the norm (n,); None for rows that are normalised.
    """
    n = x.shape[1]
    p = partitions(n)
    k = n // p
    if weight is not None and "rmsnorm_tkg" in shape["library"]:
        return library_norm(x[t0:t1, :], weight, shape).permute((0, 2, 1))
    weights = None if weight is None else load_repeated(weight)
    out = sbuf((p, k, t1 - t0), x.dtype)
    for at in range(t0, t1, PMAX):
        height = min(PMAX, t1 - at)
        rows = load(x[at : at + height, :])
        if weight is not None:
            rows = norm_rows(rows, weights, shape["eps"])
        split = rows.reshape((height, p, k))
        many = max(1, 1024 // PMAX)  # transposes that leave PSUM in one copy
        for j0 in range(0, k, many):
            count = min(many, k - j0)
            on_psum = psum((p, count, PMAX), x.dtype)[:, :, 0:height]  # none in two banks
            for j in range(count):
                nisa.nc_transpose(
                    dst=on_psum[:, j, :], data=split[:, :, j0 + j], engine=nisa.tensor_engine
                )
            nisa.tensor_copy(dst=out[:, j0 : j0 + count, at - t0 : at - t0 + height], src=on_psum)
    return out
