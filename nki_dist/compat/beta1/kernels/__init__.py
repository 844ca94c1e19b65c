"""`neuronxcc.nki.kernels`: the prebuilt kernels with launch grids as Beta 1 reads them.

They are written in today's language; `jit` of Beta 1 leaves such kernels as they are, and makes
`kernel[4]` four program instances instead of four cores.
"""

from __future__ import annotations

from nki_dist.compat.beta1.kernels import attention, vision
from nki_dist.compat.beta1.kernels.attention import flash_attn_bwd, flash_fwd
from nki_dist.compat.beta1.launch import jit
from nki_dist.kernels.rms_norm import allocated_fused_rms_norm_qkv as _norm_qkv

allocated_fused_rms_norm_qkv = jit(_norm_qkv)

__all__ = ["allocated_fused_rms_norm_qkv", "attention", "flash_attn_bwd", "flash_fwd", "vision"]
