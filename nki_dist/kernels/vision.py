"""Kernels on images (batch, height, width, channels)."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import output, programs, require, sbuf, tiles
from nki_dist.launcher.kernel import jit

# Bytes of a partition that the rows of one step may take, source and result together.
ROW_BYTES = 96 * 1024


@jit
def resize_nearest_fixed_dma_kernel(data_tensor, out_shape):
    """Images resized by taking the nearest element: row i comes from row floor(i * in / out).

    Args:
        data_tensor: (batch, height, width, channels).
        out_shape: of the result (batch and channels as in data_tensor), or a tensor to write to.

    Returns:
        A tensor of out_shape, of data_tensor's dtype. Programs take images in turn.
    """
    given = not isinstance(out_shape, (tuple, list))
    batch, height, width, channels = data_tensor.shape
    new_shape = tuple(out_shape.shape if given else out_shape)
    require(
        len(new_shape) == 4 and (new_shape[0], new_shape[3]) == (batch, channels),
        f"out_shape {new_shape} must be (batch, height, width, channels) with the batch and "
        f"channels of {data_tensor.shape}",
    )
    _, new_height, new_width, _ = new_shape
    out = out_shape if given else output(new_shape, data_tensor.dtype)
    step = max(1, ROW_BYTES // (data_tensor.dtype.itemsize * (width + new_width)))
    count, me = programs()
    for b in range(me, batch, count):
        for c0, some in tiles(0, channels, step):
            for r0, rows in tiles(0, height, nl.tile_size.pmax):
                source = sbuf((rows, width, some), data_tensor.dtype)
                nisa.dma_copy(dst=source, src=data_tensor[b, r0 : r0 + rows, :, c0 : c0 + some])
                wide = sbuf((rows, new_width, some), data_tensor.dtype)
                for j in range(new_width):
                    nisa.tensor_copy(dst=wide[:, j, :], src=source[:, j * width // new_width, :])
                # Partitions can't be repeated on the chip; DMA reads one as often as needed.
                for i in range(new_height):
                    row = i * height // new_height - r0
                    if 0 <= row < rows:
                        to = out[b, i : i + 1, :, c0 : c0 + some]
                        nisa.dma_copy(dst=to, src=wide[row : row + 1, :, :])
    return out


__all__ = ["resize_nearest_fixed_dma_kernel"]
