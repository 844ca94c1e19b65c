"""NumPy arrays as kernel arguments and results: they are what the simulator works with.

Invariant: bits are never converted here; writing back needs equal dtypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.errors import LaunchError

name = "numpy"


def owns(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def to_numpy(value: np.ndarray) -> np.ndarray:
    return value


def like(array: np.ndarray) -> np.ndarray:
    return array


def plain(array: np.ndarray) -> np.ndarray:
    """The same memory without NKI's packed dtypes: their words as unsigned integers."""
    return array if array.dtype.names is None else array.view(f"u{array.itemsize}")


def write_back(value: np.ndarray, array: np.ndarray) -> None:
    """Copy `array` into the caller's array, which keeps its memory and strides.

    Raises:
        LaunchError: the caller's array can't take it (read-only, other dtype or size, or several
            of its elements share memory).
    """
    if not value.flags.writeable:
        raise LaunchError(
            f"the kernel writes to an input that is a read-only array of shape {value.shape}; pass "
            "a writable copy (numpy.array(x))",
            code="input-read-only",
            numbers={"shape": value.shape},
        )
    value = plain(value)
    if value.dtype != array.dtype or value.size != array.size:
        raise LaunchError(
            f"an input of dtype {value.dtype} and shape {value.shape} can't take back "
            f"{array.dtype} data of shape {array.shape}",
            code="input-read-only",
            numbers={"got": array.shape, "allowed": value.shape},
        )
    if any(step == 0 and count > 1 for step, count in zip(value.strides, value.shape, strict=True)):
        raise LaunchError(
            f"the kernel writes to an input of shape {value.shape} whose elements share memory "
            f"(strides {value.strides}); pass a copy",
            code="input-read-only",
            numbers={"shape": value.shape, "strides": value.strides},
        )
    # Through unsigned integers: extension dtypes copy element by element, and NaN payloads count.
    raw = np.dtype(f"u{value.itemsize}") if value.itemsize in (1, 2, 4, 8) else value.dtype
    np.copyto(value.view(raw), array.reshape(value.shape).view(raw))
