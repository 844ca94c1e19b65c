"""Kernels of AWS's tutorials, of today's documentation and of the last release with Beta 1's."""

from __future__ import annotations

import re
from textwrap import dedent

import numpy as np

from bench.accuracy import checkouts
from bench.accuracy.library import Launch, zeros

_SDK = "aws-neuron-sdk"
_BETA1 = "v2.26.0"
_EXAMPLES = "general/nki/examples"
_BLOCK = re.compile(r"^\.\. code-block:: python\n\n((?:[ ]+\S.*\n|[ \t]*\n)+)", re.MULTILINE)
_STEPS = 5
_SIZES = (8192, 4096), (8192, 8192)  # of both matrix tutorials, the left one transposed
_STATE = 16


def matmul_by_steps(lnc: int, step: int) -> Launch:
    """The step-th improvement of a matrix product; the page's code blocks are its kernels."""
    page = checkouts.root() / _SDK / "nki/guides/tutorials/kernel-optimization.rst"
    blocks = [b for b in _BLOCK.findall(page.read_text()) if "def matrix_multiply_kernel(" in b]
    if len(blocks) != _STEPS:
        raise ValueError(f"{page} has {len(blocks)} kernels, not {_STEPS}: it has changed")
    module = checkouts.from_text(dedent(blocks[step]), f"kernel-optimization.rst, {step}")
    args = tuple(zeros(*size, dtype=np.float32) for size in _SIZES)
    return Launch(module.matrix_multiply_kernel, args, {})


def matmul(lnc: int, kernel: str) -> Launch:
    """A version of Beta 1's tutorial of matrix products."""
    path = f"{_EXAMPLES}/matrix_multiplication/matrix_multiplication_nki_kernels.py"
    module = checkouts.from_tag(_SDK, _BETA1, path)
    return Launch(getattr(module, kernel), tuple(zeros(*size) for size in _SIZES), {})


def mamba(lnc: int, version: str, channels: int, seq: int) -> Launch:
    """A version of Beta 1's tutorial of the fused Mamba kernel, float32."""
    module = checkouts.from_tag(_SDK, _BETA1, f"{_EXAMPLES}/fused_mamba/mamba_nki_kernels.py")
    shapes = [(1, channels, seq)] * 2 + [(channels, _STATE)] + [(1, _STATE, seq)] * 2
    args = tuple(zeros(*shape, dtype=np.float32) for shape in shapes)
    return Launch(getattr(module, f"mamba_{version}"), args, {})
