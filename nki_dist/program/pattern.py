"""Bytes that an access touches, as runs at intervals: what is known without an index for each."""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from nki_dist.program.access import Access


class Pattern(NamedTuple):
    """Bytes of a storage: runs of equal length, at intervals or anywhere.

    Attributes:
        first: first byte; an array with that of each run where a vector offset chose them.
        shape: runs in each dimension; empty where `first` is an array.
        strides: bytes between them.
        run: bytes of a run.
    """

    first: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    run: int

    @classmethod
    def of(cls, a: Access) -> Pattern:
        """The elements of an access, in order, but for a run-time index."""
        size = a.dtype.itemsize
        return cls(a.offset * size, a.shape, tuple([s * size for s in a.strides]), size)

    def get(self, memory: np.ndarray, unit: int, base: int = 0, dtype: Any = None) -> np.ndarray:
        """What memory has for these bytes, (*runs, cells of a run); a view if it can be one.

        Args:
            memory: something for every cell of the storage, contiguous.
            unit: bytes of a cell; runs, and what is between them, are multiples.
            base: first byte of the first cell.
            dtype: of what memory has for a cell, by default its own.
        """
        table, index = self._cells(memory, unit, base, dtype)
        return np.asarray(table[index])

    def put(
        self, new: Any, memory: np.ndarray, unit: int, base: int = 0, dtype: Any = None
    ) -> None:
        """Change what memory has for these bytes; see `get`."""
        table, index = self._cells(memory, unit, base, dtype)
        table[index] = new

    def _cells(self, memory: np.ndarray, unit: int, base: int, dtype: Any) -> tuple[Any, Any]:
        dtype = np.dtype(dtype or memory.dtype)
        size, count, first = dtype.itemsize, self.run // unit, (self.first - base) // unit
        if isinstance(first, np.ndarray):
            rows = max(memory.nbytes // size - count + 1, 0)
            return np.ndarray((rows, count), dtype, memory, 0, (size, size)), first
        strides = (*[s // unit * size for s in self.strides], size)
        return np.ndarray((*self.shape, count), dtype, memory, first * size, strides), ...

    def joined(self) -> Pattern:
        """The same bytes, in any order, as fewer and longer runs."""
        if not self.shape:
            return self
        run, steps = self.run, [(1, 0)]
        for stride, n in sorted((abs(s), n) for n, s in zip(self.shape, self.strides) if n > 1):
            if stride <= run and len(steps) == 1:
                run += (n - 1) * stride
            else:
                steps.append((n, stride))
        first = self.first + sum((n - 1) * min(s, 0) for n, s in zip(self.shape, self.strides))
        shape, strides = zip(*steps)
        return Pattern(first, shape, strides, run)

    def span(self) -> tuple[int, int]:
        """First byte and the one past the last of joined runs; the same if there are none."""
        if not np.size(self.first):
            return 0, 0
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + self.run
        return int(np.min(self.first)), int(np.max(self.first)) + reach

    def unit(self, base: int) -> int:
        """Bytes of the largest cells, from byte `base` on, of which joined runs consist."""
        return gcd(self.run, *self.strides, int(np.gcd.reduce(self.first - base)))
