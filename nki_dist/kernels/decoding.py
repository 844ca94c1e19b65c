"""Attention of one token to a cache of keys and values, and rotary embedding.

Building blocks, as those of `online_softmax`: all of it runs while a kernel is traced, tiles are in
SBUF. Where a logical core has two cores, they share the places of the cache and exchange their sums
(`nisa.sendrecv`), so both call these and both get the results.
"""

from __future__ import annotations

from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import (
    activation_sums,
    combine,
    exchanged,
    fused,
    load,
    programs,
    psum,
    require,
    sbuf,
    tiles,
    turned,
)
from nki_dist.kernels.online_softmax import MASKED

PIPE = 1  # of sendrecv


def rotated(x: Any, cos: Any, sin: Any, partner: Any, dtype: Any = None) -> Any:
    """x * cos + partner.T @ x * sin: rotary embedding of heads that lie on partitions.

    Args:
        x: (d, n) float32 tile, n at most 512.
        cos, sin: (d, n) tiles or views of them.
        partner: (d, d) float32 tile that gives each element its partner: minus ones and ones.
        dtype: of the result; float32 by default.
    """
    products = psum(x.shape)
    nisa.nc_matmul(dst=products, stationary=partner, moving=x)
    across = combine(products, sin, nl.multiply, nl.float32)
    return combine(combine(x, cos, nl.multiply, nl.float32), across, nl.add, dtype or nl.float32)


def later_than(position: Any, rows: int, places: int) -> Any:
    """What to add to scores: MASKED at places of the cache behind a run-time position, else 0.

    Args:
        position: (1, 1) int32 in HBM.
        rows: of the result, one for each head.
        places: of the cache, shared by the cores.

    Returns:
        (rows, places of this core) float32 tile.
    """
    cores, me = programs()
    count = places // cores
    numbers, mask = sbuf((rows, count), nl.float32), sbuf((rows, count), nl.float32)
    nisa.iota(dst=numbers, pattern=[[1, count]], offset=count * me)
    here = sbuf((rows, 1), nl.float32)
    nisa.tensor_copy(dst=here, src=load(position.broadcast(0, rows)))
    nisa.tensor_scalar(
        dst=mask, data=numbers, op0=nl.greater, operand0=here, op1=nl.multiply, operand1=MASKED
    )
    return mask


def attend_cache(q: Any, keys: Any, values: Any, mask: Any, scale: float) -> Any:
    """softmax(scale * q.T @ keys + mask) @ values.

    Args:
        q: (d, heads) tile, d at most 128.
        keys: (d, at least all cores' places) in HBM.
        values: (at least all cores' places, d) in HBM.
        mask: (heads, places of this core), as `later_than` gives it; a multiple of 128 places.
        scale: factor on the scores.

    Returns:
        (heads, d) tile of values' dtype.
    """
    pmax, (d, heads), count = nl.tile_size.pmax, q.shape, mask.shape[1]
    require(count % pmax == 0, f"{count} places of the cache on a core; a multiple of {pmax}")
    first, per = count * programs()[1], count // pmax
    k = load(keys[:, first : first + count])
    v = load(values[first : first + count, :].reshape((pmax, per, d)))
    scores = sbuf((heads, count), nl.float32)
    for c0, width in tiles(0, count, nl.tile_size.psum_fmax):
        products, at = psum((heads, width)), slice(c0, c0 + width)
        nisa.nc_matmul(dst=products, stationary=q, moving=k[:, at])
        nisa.tensor_tensor(dst=scores[:, at], data1=products, data2=mask[:, at], op=nl.add)
    # of this core: the largest score, the sum of exponentials, the context
    found = sbuf((heads, d + 2), nl.float32)
    nisa.tensor_reduce(dst=found[:, 0:1], op=nl.maximum, data=scores, axis=1)
    bias, weights = sbuf((heads, 1), nl.float32), sbuf((heads, count), values.dtype)
    nisa.tensor_scalar(dst=bias, data=found[:, 0:1], op0=nl.multiply, operand0=-scale)
    activation_sums(weights, found[:, 1:2], nl.exp, scores, scale=scale, bias=bias)
    split, context = weights.reshape((heads, pmax, per)), psum((heads, d))
    for j in range(per):  # a partition has neighbouring places
        nisa.nc_matmul(dst=context, stationary=turned(split[:, :, j]), moving=v[:, j, :])
    nisa.tensor_copy(dst=found[:, 2:], src=context)
    total = _of_all_places(found, scale)
    share, out = sbuf((heads, 1), nl.float32), sbuf((heads, d), values.dtype)
    nisa.reciprocal(dst=share, data=total[:, 1:2])
    nisa.tensor_scalar(dst=out, data=total[:, 2:], op0=nl.multiply, operand0=share)
    return out


def _of_all_places(mine: Any, scale: float) -> Any:
    """Both cores' largest scores, sums and contexts, put together, core 0's first."""
    cores, me = programs()
    if cores == 1:
        return mine
    rows, (first, second) = mine.shape[0], exchanged(mine, me, PIPE)
    bias = combine(first[:, 0:1], second[:, 0:1], nl.maximum, nl.float32)
    nisa.tensor_scalar(dst=bias, data=bias, op0=nl.multiply, operand0=-scale)
    weight, total = sbuf((rows, 2), nl.float32), sbuf(mine.shape, nl.float32)
    for n, part in enumerate((first, second)):
        nisa.activation(
            dst=weight[:, n : n + 1], op=nl.exp, data=part[:, 0:1], scale=scale, bias=bias
        )
    nisa.tensor_scalar(dst=total, data=first, op0=nl.multiply, operand0=weight[:, 0:1])
    fused(total, second, weight[:, 1:2], nl.add, total)
    return total


__all__ = ["attend_cache", "later_than", "rotated"]
