"""Running Beta 1 kernels in tests, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_dist.compat.beta1 import jit, simulate_kernel


def run(kernel: Callable[..., Any], *args: Any, grid: Any = None) -> Any:
    """What the kernel returns."""
    made = jit(kernel)
    return simulate_kernel(made if grid is None else made[grid], *args)


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(got: Any, wanted: Any, tolerance: float = 1e-6) -> None:
    """Equal shapes, and equal within a share of the largest value."""
    got = np.asarray(got)
    wanted = np.asarray(wanted)
    assert got.shape == wanted.shape
    scale = max(1.0, float(np.abs(wanted.astype(np.float64)).max()))
    error = np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max()
    assert error <= tolerance * scale, error
