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
    allowed = atol + rtol * float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    close = np.isclose(a, b, rtol=0, atol=allowed, equal_nan=True)
    if verbose and not close.all():
        with np.errstate(invalid="ignore"):
            error = np.where(close, 0, np.abs(a - b))
        worst = tuple(map(int, np.unravel_index(error.argmax(), error.shape)))
        print(
            f"{np.sum(~close)} of {close.size} elements differ by more than {allowed:.3g}; most at "
            f"{worst}: got {a[worst]}, expected {b[worst]}"
        )
    return bool(close.all())


__all__ = ["allclose"]
