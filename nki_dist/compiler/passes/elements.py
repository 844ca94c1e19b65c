"""A small value for every element of a storage, addressed with the program's access patterns.

Units are as fine as the smallest element type that any access has used, so views that reinterpret
the dtype are exact. Doesn't resolve run-time offsets: callers decide what those mean.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any, Final

import numpy as np

from nki_dist.program import Access, Storage

LARGEST: Final = 1 << 26  # elements; nobody keeps a value for each element beyond this


def covers(a: Access) -> bool:
    """Whether a static access touches every element of its storage exactly once."""
    s = a.storage
    if a.shape == s.shape and a.strides == s.strides and a.dtype is s.dtype and not a.offset:
        return a.dynamic is None
    if a.dynamic is not None or prod(a.shape) * a.dtype.itemsize != s.nbytes:
        return False
    count = reach = 1
    for n, stride in zip(a.shape, a.strides, strict=True):
        count *= n
        reach += (n - 1) * abs(stride)
    return count == reach


class Elements:
    """One value per element, all the same at first.

    Args:
        storage: whose elements.
        value: their value at first.
        dtype: bool or uint8.
        unit: bytes per value, by default the size of the storage's elements.
    """

    __slots__ = ("mask", "unit")

    def __init__(
        self, storage: Storage, value: Any = False, dtype: Any = bool, unit: int = 0
    ) -> None:
        self.unit = unit or storage.dtype.itemsize
        count = max(storage.nbytes // self.unit, 1)
        # Zeros come from the system, which makes only those pages that are used.
        self.mask = np.full(count, value, dtype) if value else np.zeros(count, dtype)

    def units(self, a: Access) -> np.ndarray:
        """The units of an access: its shape, with one more dimension if elements have several."""
        size = a.dtype.itemsize
        if size % self.unit:
            finer = gcd(size, self.unit)
            self.mask = np.repeat(self.mask, self.unit // finer)
            self.unit = finer
        k = size // self.unit
        dtype = self.mask.dtype
        if k == 1:
            return np.ndarray(a.shape, dtype, self.mask, a.offset, a.strides)
        strides = tuple(s * k for s in a.strides)
        return np.ndarray((*a.shape, k), dtype, self.mask, a.offset * k, (*strides, 1))

    def any(self, a: Access) -> np.ndarray:
        """For each element of the access: whether one of its units is nonzero."""
        units = self.units(a)
        return units if units.ndim == len(a.shape) else np.logical_or.reduce(units, axis=-1)

    def put(self, a: Access, values: np.ndarray) -> None:
        """Set every element of the access; `values` has its shape."""
        units = self.units(a)
        units[...] = values if units.ndim == values.ndim else values[..., None]
