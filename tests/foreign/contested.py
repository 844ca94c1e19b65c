"""What documents say is refused and published kernels do that ran on devices, in our own kernels.

Each of these was refused here or warned about for a while, or is by a page that AWS's own kernels
contradict: the sources stand beside the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compat import beta1
from tests.foreign.written import Written, whole


def fills_with_floats(x):
    """0.0 and 3.0 for integer types (nki-library, down_projection_mx, cross_partition_copy)."""
    types = (nl.uint8, nl.uint32, nl.int32, nl.int16)
    out = nl.ndarray((4, 2, 8, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in range(4):
        for k in range(2):
            tile = nl.ndarray((8, 12), dtype=types[n], buffer=nl.sbuf)
            result = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=tile, value=3.0 * k)
            nisa.tensor_copy(result, tile)
            nisa.dma_copy(out[n, k], result)
    return out


def numbers_for_enums(x):
    """dge_mode as a number (nki-library, mlp_tkg, norm_tkg_utils)."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x, dge_mode=0)
    nisa.dma_copy(out, tile, dge_mode=3)
    return out


def asks_identity(x, y=None):
    """`is` between objects, and of None (nki-library, test_tensor_view, everywhere)."""
    other = x
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    if other is x and y is None:
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    nisa.dma_copy(out, tile)
    return out


def adds_lists(tensors):
    """A list of tensors as argument (nki-library's moe kernels), of different lengths' shapes."""
    first = tensors[0]
    out = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.sbuf)
    nisa.memset(total, value=0.0)
    for n in range(len(tensors)):
        tile = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, tensors[n])
        nisa.tensor_tensor(total, total, tile, nl.add)
    nisa.dma_copy(out, total)
    return out


def returns_private(x):
    """A result in nl.hbm (the tutorial about optimising a kernel)."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def doubled(x):
    """A decorated kernel, that others call."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nisa.dma_copy(out, tile)
    return out


def calls_kernels(x):
    """A decorated kernel calls decorated ones (nki-library, moe_cte, attention_block_tkg)."""
    return doubled(doubled(x))


def copies_other_shapes(x):
    """dma_copy between tensors of as many elements and other shapes."""
    out = nl.ndarray((2, 4, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile.reshape((8, 2, 6)))
    return out


def loops_in_loops(x, rounds):
    """Dynamic loops inside dynamic loops, and a copy at a place that a register names."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(count, rounds)
    outer, inner = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(outer, count)
    nisa.register_load(inner, count)
    tile = nl.ndarray((1, 12), dtype=x.dtype, buffer=nl.sbuf)

    def row(k):
        nisa.dma_copy(tile, x.select(0, k))

        def add(_):
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)

        nl.fori_loop(0, inner, add)
        nisa.dma_copy(out.select(0, k), tile)

    nl.fori_loop(0, outer, row)
    return out


def six_dimensions(x):
    """Beta 1: a view of six free dimensions (nki-samples, trilinear interpolation)."""
    language: Any = beta1.language
    out = language.ndarray((4, 2, 2, 2, 3, 3, 3), dtype=x.dtype, buffer=language.shared_hbm)
    tile = language.load(x)
    p, a, b, c, i, j, k = language.mgrid[0:4, 0:2, 0:2, 0:2, 0:3, 0:3, 0:3]
    language.store(out, 2.0 * tile[p, a + i, b + j, c + k])
    return out


def windows(x):
    p, a, b, c, i, j, k = np.mgrid[0:4, 0:2, 0:2, 0:2, 0:3, 0:3, 0:3]
    return 2 * x[p, a + i, b + j, c + k]


X = whole(8, 12)
CONTESTED = {
    "fills_with_floats": Written(
        fills_with_floats,
        (X,),
        lambda x: np.broadcast_to(np.array([0, 3])[:, None, None], (4, 2, 8, 12)),
    ),
    "returns_private": Written(returns_private, (X,), lambda x: x),
    "numbers_for_enums": Written(numbers_for_enums, (X,), lambda x: x),
    "asks_identity": Written(asks_identity, (X,), lambda x: x + 1),
    "adds_lists": Written(adds_lists, ([X, 2 * X, X],), lambda x: 4 * x[0]),
    "calls_kernels": Written(calls_kernels, (X,), lambda x: 4 * x),
    "copies_other_shapes": Written(copies_other_shapes, (X,), lambda x: x.reshape(2, 4, 12)),
    "loops_in_loops": Written(
        loops_in_loops,
        (whole(8, 1, 12), np.array([[8]], np.int32)),
        lambda x, rounds: x + 8,
    ),
    "six_dimensions": Written(six_dimensions, (whole(4, 4, 5, 6),), windows, beta1=True),
}
