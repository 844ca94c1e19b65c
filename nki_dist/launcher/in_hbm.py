"""Shape and dtype of a tensor that stays in HBM: all that is needed to bind it as an argument."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.dtypes import DType


class InHbm:
    """A tensor that stays in HBM.

    Attributes:
        shape: of each rank's part.
        name: for messages.
        hollow: an array of its shape and dtype that takes no memory.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType, name: str) -> None:
        self.shape, self._dtype, self.name = shape, dtype, name
        self.hollow = np.broadcast_to(np.zeros((), dtype.dtype), shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype.dtype

    @property
    def nki_dtype(self) -> DType:
        """Its dtype, as kernels know it."""
        return self._dtype
