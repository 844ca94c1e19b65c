"""Where tensors begin in host memory: at cache lines, so that vector loads don't straddle them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

ALIGNMENT: Final = 64  # bytes


def padded(nbytes: int) -> int:
    """The next multiple of a cache line."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def aligned(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Uninitialised bytes that begin at a cache line."""
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]
