"""Arguments without contents: descriptions of arrays, where only shapes and dtypes matter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.errors import LaunchError


@dataclass(frozen=True)
class TensorSpec:
    """Stands for an array where only shape and dtype matter: in dry runs and estimates.

    Args:
        shape: a tuple of ints.
        dtype: anything that names an NKI dtype: `nl.bfloat16`, `np.float32`, "int8".
    """

    shape: tuple[int, ...]
    dtype: Any

    def __post_init__(self) -> None:
        shape = self.shape
        if not isinstance(shape, tuple) or not all(isinstance(n, int) and n > 0 for n in shape):
            raise LaunchError(
                f"TensorSpec of shape {shape!r}; allowed: a tuple of positive ints",
                code="shape-form",
                numbers={"got": shape},
            )
        dtypes.of(self.dtype)

    def hollow(self) -> np.ndarray:
        """An array of this shape and dtype that takes no memory."""
        dtype = dtypes.of(self.dtype).dtype
        return np.broadcast_to(np.zeros((), dtype), self.shape)
