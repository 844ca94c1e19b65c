"""`neuronxcc.starfish.support.util`: the comparison that AWS's samples assert with."""

from __future__ import annotations

from typing import Any

import numpy as np


def allclose(
    actual: Any,
    expected: Any,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    verbose: int = 0,
    **_: Any,
) -> bool:
    """Whether two arrays agree: |a - b| <= atol + rtol * max|b| for every element.

    Args:
        actual, expected: arrays of equal shape; NaN agrees with NaN, and infinities with their own.
        rtol: relative to the largest finite magnitude of `expected`.
        atol: absolute.
        verbose: print where they differ most, if they do.
    """
    a, b = (np.asarray(x).astype(np.float64) for x in (actual, expected))
    if a.shape != b.shape:
        if verbose:
            print(f"shapes differ: {a.shape} and {b.shape}")
        return False
    finite = np.isfinite(a) & np.isfinite(b)
    same = np.isnan(a) & np.isnan(b) | (a == b)
    largest = float(np.abs(b[finite]).max(initial=0.0))
    error = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)), np.inf)
    error[same] = 0.0
    allowed = atol + rtol * largest
    good = bool((error <= allowed).all())
    if verbose and not good:
        worst = np.unravel_index(int(error.argmax()), error.shape)
        at = tuple(int(i) for i in worst)
        print(
            f"{int((error > allowed).sum())} of {error.size} elements differ by more than "
            f"{allowed:.3g}; most at {at}: got {a[worst]}, expected {b[worst]}"
        )
    return good


__all__ = ["allclose"]
