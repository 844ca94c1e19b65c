"""PyTorch operators whose forward and backward are kernels of nki_dist.kernels.

A kernel's result has no history, so autograd is told the gradient: a `torch.autograd.Function`
whose backward launches the gradient's kernel. Operators take float32 or bfloat16 tensors and
compute in `Launch.dtype`; gradients come back in the dtype of what they belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import nki_dist as nki
from nki_dist import kernels


@dataclass(frozen=True)
class Launch:
    """How operators launch their kernels.

    Attributes:
        lnc: NeuronCores, 1 or 2.
        host: "ray" (cores are actors) or "inprocess".
        dtype: what kernels compute with; sums are float32 in any case.
    """

    lnc: int = 2
    host: str = "inprocess"
    dtype: torch.dtype = torch.bfloat16

    def __call__(self, kernel: Any, *tensors: torch.Tensor, **options: Any) -> Any:
        """Run a kernel on tensors, which are made dense and of the right dtype first."""
        return self.on_cores(kernel)(*map(self.cast, tensors), **options)

    def on_cores(self, kernel: Any) -> Any:
        """The kernel with its grid, on the host asked for."""
        return nki.simulate(kernel[self.lnc]) if self.host == "inprocess" else kernel[self.lnc]

    def cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self.dtype).contiguous()


class RMSNorm(torch.autograd.Function):
    """x (rows, hidden), weight (hidden,) -> normalised rows."""

    @staticmethod
    def forward(ctx: Any, launch: Launch, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.launch = launch
        ctx.save_for_backward(x, weight)
        return launch(kernels.rms_norm, x, weight).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        dx, dweight = ctx.launch(kernels.rms_norm_backward, x, weight, dy)
        return None, dx.to(x.dtype), dweight.to(weight.dtype)


class NormQKV(torch.autograd.Function):
    """x (rows, hidden), norm weight, qkv weight (hidden, columns) -> projections of the rows."""

    @staticmethod
    def forward(
        ctx: Any, launch: Launch, x: torch.Tensor, norm: torch.Tensor, qkv: torch.Tensor
    ) -> torch.Tensor:
        ctx.launch = launch
        ctx.save_for_backward(x, norm, qkv)
        return launch(kernels.rmsnorm_qkv, x, norm, qkv).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        (x, norm, qkv), launch = ctx.saved_tensors, ctx.launch
        rows = launch(kernels.rms_norm, x, norm)
        drows = launch(kernels.matmul, dy, qkv, transpose_rhs=True)
        dqkv = launch(kernels.matmul, rows, dy, transpose_lhs=True)
        dx, dnorm = launch(kernels.rms_norm_backward, x, norm, drows)
        return None, dx.to(x.dtype), dnorm.to(norm.dtype), dqkv.to(qkv.dtype)


class Attention(torch.autograd.Function):
    """Causal attention; q, k, v and the result are (batch, heads, sequence, d)."""

    @staticmethod
    def forward(
        ctx: Any, launch: Launch, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        out, lse = launch(kernels.flash_fwd, q.mT, k.mT, v)
        ctx.launch = launch
        ctx.save_for_backward(q, k, v, out, lse)
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        turned = (ctx.launch.cast(t.mT) for t in (q, k, v, out, dy))
        backward = ctx.launch.on_cores(kernels.flash_attn_bwd)
        gradients = backward(*turned, lse, use_causal_mask=True)  # lse stays float32
        return None, *(g.mT.to(q.dtype) for g in gradients)


class MLP(torch.autograd.Function):
    """gelu(x @ up) @ down; x (rows, hidden)."""

    @staticmethod
    def forward(
        ctx: Any, launch: Launch, x: torch.Tensor, up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        ctx.launch = launch
        ctx.save_for_backward(x, up, down)
        return launch(kernels.mlp, x, up, down).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        gradients = ctx.launch(kernels.mlp_backward, *saved, dy)
        return None, *(g.to(t.dtype) for g, t in zip(gradients, saved, strict=True))
