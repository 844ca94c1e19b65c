"""Average pooling: windows are a view with five dimensions, and pooling is a reduction of it.

python examples/spmd/average_pool.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def average_pool(image, window=2):
    """Means over windows of `window` x `window` of a (channels, height, width) image.

    Channels lie on partitions and are shared out between the cores. Height and width must be
    multiples of the window.
    """
    channels, height, width = image.shape
    assert height % window == 0 and width % window == 0
    h, w = height // window, width // window
    out = nl.ndarray((channels, h, w), dtype=image.dtype, buffer=nl.shared_hbm)
    for block in tiles(*my_share(channels), nl.tile_size.pmax):
        c0, count = block
        tile = nl.ndarray((count, height, width), dtype=image.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=image[c0 : c0 + count])
        # (c, h*k, w*k) seen as (c, h, w, k, k): no data moves, only strides change.
        windows = tile.reshape_dim(2, (w, window)).reshape_dim(1, (h, window))
        windows = windows.permute((0, 1, 3, 2, 4))
        means = nl.ndarray((count, h, w), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=means, op=nl.add, data=windows, axis=(3, 4))
        pooled = nl.ndarray((count, h, w), dtype=image.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=pooled, data=means, op0=nl.multiply, operand0=1.0 / (window * window)
        )
        nisa.dma_copy(dst=out[c0 : c0 + count], src=pooled)
    return out


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """One image."""
    shape = (37, 12, 10) if small else (256, 112, 112)
    return (rng.standard_normal(shape, dtype=np.float32),)


def reference(image: np.ndarray, window: int = 2) -> np.ndarray:
    channels, height, width = image.shape
    split = image.astype(np.float64).reshape(
        channels, height // window, window, width // window, window
    )
    return split.mean(axis=(2, 4))


EXAMPLE = Example("average pooling", (average_pool,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
