"""AdamW, in place."""

from __future__ import annotations

from math import gcd, prod

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.blocks import fused, load, my_tiles, require, sbuf
from nki_dist.launcher.kernel import jit


@jit
def adamw(
    weight,
    gradient,
    moments,
    corrections,
    learning_rate=1e-3,
    weight_decay=0.01,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
):
    """A step of AdamW, as `torch.optim.AdamW` takes it; writes the weight and the moments.

    What depends on the number n of the step, from 1, comes in a tensor, so that all steps are one
    compiled kernel.

    Args:
        weight, gradient: of one shape, float32.
        moments: `(2, *shape)` float32, zeros before the first step.
        corrections: (1, 2) float32: `1 / (1 - beta1**n)` and `1 / (1 - beta2**n)`.
        learning_rate, weight_decay, beta1, beta2, eps: numbers.

    Cores share the columns, of rows as many as 128 has in common with the weight's elements.
    """
    require(
        weight.shape == gradient.shape and moments.shape == (2, *weight.shape),
        f"adamw takes a weight {weight.shape}, a gradient like it and moments "
        f"{(2, *weight.shape)}, got {gradient.shape} and {moments.shape}",
    )
    rows = gcd(nl.tile_size.pmax, prod(weight.shape))
    flat = (rows, prod(weight.shape) // rows)
    w, g = weight.reshape(flat), gradient.reshape(flat)
    first, second = moments[0].reshape(flat), moments[1].reshape(flat)
    factors = load(corrections.broadcast(0, rows))
    nisa.tensor_scalar(
        dst=factors[:, 0:1], data=factors[:, 0:1], op0=nl.multiply, operand0=-learning_rate
    )
    for at in my_tiles(flat):
        mean, variance, new, value = load(first[at]), load(second[at]), load(g[at]), load(w[at])
        root = sbuf(new.shape, nl.float32)
        nisa.activation(dst=root, op=nl.square, data=new)
        _toward(mean, new, beta1)
        _toward(variance, root, beta2)
        nisa.dma_copy(dst=first[at], src=mean)
        nisa.dma_copy(dst=second[at], src=variance)
        nisa.activation(dst=root, op=nl.sqrt, data=variance, scale=factors[:, 1:2])
        nisa.tensor_scalar(dst=root, data=root, op0=nl.add, operand0=eps)
        nisa.reciprocal(dst=root, data=root)
        fused(root, root, factors[:, 0:1], nl.multiply, mean)
        fused(value, value, 1 - learning_rate * weight_decay, nl.add, root)
        nisa.dma_copy(dst=w[at], src=value)


def _toward(mean, new, beta):
    """mean = beta * mean + (1 - beta) * new."""
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=beta)
    fused(mean, new, 1 - beta, nl.add, mean)


__all__ = ["adamw"]
