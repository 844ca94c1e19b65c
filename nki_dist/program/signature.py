"""What is known of a tensor argument before there is one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from nki_dist.dtypes import DType


@dataclass(frozen=True)
class TensorSignature:
    """A tensor argument.

    Attributes:
        index: its number among the tensor arguments.
        shape, dtype: as the kernel sees it.
        name: how messages call it, such as `weights['q']`.
    """

    index: int
    shape: tuple[int, ...]
    dtype: DType
    name: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize
