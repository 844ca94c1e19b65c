"""`neuronxcc.nki.kernels.vision`."""

from __future__ import annotations

from nki_dist.compat.beta1.launch import jit
from nki_dist.kernels import vision

resize_nearest_fixed_dma_kernel = jit(vision.resize_nearest_fixed_dma_kernel)

__all__ = ["resize_nearest_fixed_dma_kernel"]
