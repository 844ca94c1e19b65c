"""`neuronxcc.nki.kernels.attention`."""

from __future__ import annotations

from nki_dist.compat.beta1.launch import jit
from nki_dist.kernels import attention
from nki_dist.kernels.attention import FlashConfig

_KERNELS = {n: jit(getattr(attention, n)) for n in attention.__all__ if n != "FlashConfig"}
globals().update(_KERNELS)
flash_fwd, flash_attn_bwd = _KERNELS["flash_fwd"], _KERNELS["flash_attn_bwd"]

__all__ = ["FlashConfig", *_KERNELS]
