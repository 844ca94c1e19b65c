"""Prebuilt kernels under the field's names, each with its gradient.

All take and give HBM tensors, keep sums in float32 and round once, end in narrow tiles instead of
padding, and run on one core or two (`kernel[2]`). They are ordinary kernels: read them, copy them.
Programs for Beta 1 find them, and a few that only they look for, in `neuronxcc.nki.kernels`.
"""

from __future__ import annotations

from nki_dist.kernels.adamw import adamw
from nki_dist.kernels.attention import FlashConfig, flash_attn_bwd, flash_fwd
from nki_dist.kernels.matmul import matmul
from nki_dist.kernels.mlp import mlp, mlp_backward
from nki_dist.kernels.rms_norm import rms_norm, rms_norm_backward, rmsnorm_qkv
from nki_dist.kernels.softmax import softmax, softmax_backward
from nki_dist.kernels.swiglu import swiglu, swiglu_backward

__all__ = [
    "FlashConfig",
    "adamw",
    "flash_attn_bwd",
    "flash_fwd",
    "matmul",
    "mlp",
    "mlp_backward",
    "rms_norm",
    "rms_norm_backward",
    "rmsnorm_qkv",
    "softmax",
    "softmax_backward",
    "swiglu",
    "swiglu_backward",
]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
