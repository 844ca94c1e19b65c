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
        verbose: print how they differ, if they do.
    """
    a, b = (np.asarray(x).astype(np.float64) for x in (actual, expected))
    allowed = atol + rtol * float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    try:
        np.testing.assert_array_equal(a.shape, b.shape)
        np.testing.assert_allclose(a, b, rtol=0, atol=allowed)
    except AssertionError as difference:
        if verbose:
            print(difference)
        return False
    return True


__all__ = ["allclose"]
