"""`neuronxcc.nki`: NKI Beta 1, a front end of its own over the same instructions.

Purpose: kernels written for NKI 0.1 run unmodified. Instructions return tiles, transfers take
masks, tensors are indexed by expressions of `nl.arange` and `nl.mgrid`. All of it is resolved while
the kernel is traced; what comes out is a program like any other.

Follows: the NKI 0.1 documentation (AWS Neuron SDK 2.26).
"""

from __future__ import annotations

from nki_dist.compat.beta1 import compiler, isa, language, typing
from nki_dist.compat.beta1.launch import (
    baremetal,
    benchmark,
    jit,
    profile,
    simulate_kernel,
    trace,
)
from nki_dist.compat.beta1.typing import tensor

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "tensor",
    "trace",
    "typing",
]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
