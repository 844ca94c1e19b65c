"""`neuronxcc.nki.kernels.attention`."""

from __future__ import annotations

from nki_dist.compat.beta1.launch import jit
from nki_dist.kernels import attention
from nki_dist.kernels.attention import FlashConfig

flash_fwd = jit(attention.flash_fwd)
flash_attn_bwd = jit(attention.flash_attn_bwd)
fused_self_attn_for_SD_small_head_size = jit(attention.fused_self_attn_for_SD_small_head_size)
allocated_fused_self_attn_for_SD_small_head_size = jit(
    attention.allocated_fused_self_attn_for_SD_small_head_size
)

__all__ = [
    "FlashConfig",
    "allocated_fused_self_attn_for_SD_small_head_size",
    "flash_attn_bwd",
    "flash_fwd",
    "fused_self_attn_for_SD_small_head_size",
]
