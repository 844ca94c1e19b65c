"""A two-layer transformer trained with NKI kernels, next to the same model in plain PyTorch.

Attention, MLP and RMSNorm (fused with the QKV projection where there is one) run forward and
backward as kernels on simulated NeuronCores; embeddings, the output projections and the optimiser
are PyTorch's. Both models start from the same weights and see the same batches, so their loss
curves agree within what bfloat16 rounds away.

    python examples/torch/transformer.py [--steps 50] [--lnc 2] [--host ray]
"""

from __future__ import annotations

import argparse
import copy
from dataclasses import dataclass

import torch
from operators import MLP, Attention, Launch, NormQKV, RMSNorm
from torch import nn
from torch.nn import functional

EPSILON = 1e-6


@dataclass(frozen=True)
class Size:
    """Of a model; `hidden` is a multiple of `heads`."""

    vocabulary: int = 48
    hidden: int = 64
    heads: int = 2
    layers: int = 2
    intermediate: int = 192
    sequence: int = 40


class Layer(nn.Module):
    """Attention and MLP, each on normalised input and added to it."""

    def __init__(self, size: Size, launch: Launch | None) -> None:
        super().__init__()
        self.heads, self.launch = size.heads, launch
        hidden, inner = size.hidden, size.intermediate
        self.norm_attention = nn.Parameter(torch.ones(hidden))
        self.norm_mlp = nn.Parameter(torch.ones(hidden))
        self.qkv = nn.Parameter(torch.randn(hidden, 3 * hidden) * hidden**-0.5)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Parameter(torch.randn(hidden, inner) * hidden**-0.5)
        self.down = nn.Parameter(torch.randn(inner, hidden) * inner**-0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, sequence, hidden = x.shape
        qkv = self.norm_qkv(x.reshape(-1, hidden)).reshape(batch, sequence, 3, self.heads, -1)
        context = self.attend(*qkv.permute(2, 0, 3, 1, 4))
        x = x + self.out(context.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.norm_then_mlp(x.reshape(-1, hidden)).reshape(x.shape)

    def norm_qkv(self, rows: torch.Tensor) -> torch.Tensor:
        if self.launch is None:
            return norm(rows, self.norm_attention) @ self.qkv
        return NormQKV.apply(self.launch, rows, self.norm_attention, self.qkv)

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.launch is None:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return Attention.apply(self.launch, q, k, v)

    def norm_then_mlp(self, rows: torch.Tensor) -> torch.Tensor:
        if self.launch is None:
            return functional.gelu(norm(rows, self.norm_mlp) @ self.up) @ self.down
        normalised = RMSNorm.apply(self.launch, rows, self.norm_mlp)
        return MLP.apply(self.launch, normalised, self.up, self.down)


class Transformer(nn.Module):
    """A decoder; with `launch=None` all of it is PyTorch's."""

    def __init__(self, size: Size, launch: Launch | None) -> None:
        super().__init__()
        self.launch = launch
        self.tokens = nn.Embedding(size.vocabulary, size.hidden)
        self.positions = nn.Parameter(torch.randn(size.sequence, size.hidden) * 0.1)
        self.layers = nn.ModuleList(Layer(size, launch) for _ in range(size.layers))
        self.norm = nn.Parameter(torch.ones(size.hidden))
        self.head = nn.Linear(size.hidden, size.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        rows = x.reshape(-1, x.shape[-1])
        if self.launch is None:
            rows = norm(rows, self.norm)
        else:
            rows = RMSNorm.apply(self.launch, rows, self.norm)
        return self.head(rows).reshape(*tokens.shape, -1)

    def in_torch(self) -> Transformer:
        """The same weights, computed by PyTorch alone."""
        other = copy.deepcopy(self)
        other.launch = None
        for layer in other.layers:
            layer.launch = None
        return other


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight


def batches(size: Size, batch: int, steps: int, seed: int) -> torch.Tensor:
    """Sequences that count upwards in steps of their own: the step is to be found out."""
    random = torch.Generator().manual_seed(seed)
    start = torch.randint(size.vocabulary, (steps, batch, 1), generator=random)
    stride = torch.randint(1, 4, (steps, batch, 1), generator=random)
    return (start + stride * torch.arange(size.sequence + 1)) % size.vocabulary


def train(model: Transformer, data: torch.Tensor, rate: float = 3e-3) -> list[float]:
    """The loss of every step."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate)
    losses = []
    for sequences in data:
        logits = model(sequences[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def both(size: Size, launch: Launch, steps: int, seed: int) -> tuple[list[float], list[float]]:
    """Loss curves with kernels and without, from the same start on the same data."""
    torch.manual_seed(seed)
    model = Transformer(size, launch)
    plain = model.in_torch()
    data = batches(size, batch=4, steps=steps, seed=seed)
    return train(model, data), train(plain, data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lnc", type=int, default=2, help="NeuronCores: 1 or 2")
    parser.add_argument("--host", choices=("ray", "inprocess"), default="inprocess")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    launch = Launch(chosen.lnc, chosen.host)
    with_kernels, plain = both(Size(), launch, chosen.steps, chosen.seed)
    print("step   kernels   PyTorch")
    for step, (ours, theirs) in enumerate(zip(with_kernels, plain, strict=True)):
        if step % 5 == 0 or step == chosen.steps - 1:
            print(f"{step:4d}   {ours:7.4f}   {theirs:7.4f}")
    worst = max(abs(a - b) / b for a, b in zip(with_kernels, plain, strict=True))
    print(f"largest difference: {worst:.2%} of the loss")


if __name__ == "__main__":
    main()
