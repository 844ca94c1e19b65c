"""Which elements of one tensor have been written, worked out when somebody asks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.compiler.passes.elements import Elements, covers
from nki_dist.program import Access, Storage

PENDING: Final = 64  # writes that are noted before they are marked


class Written:
    """Of one storage, which it doesn't refer to: see `lives`.

    Args:
        whole: all of it has been written from the start.

    Attributes:
        whole: all of it has been written.
    """

    __slots__ = ("_elements", "_pending", "whole")

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole
        self._pending: list[Access] = []
        self._elements: Elements | None = None

    def add(self, a: Access) -> None:
        """Every element of the access has been written; its address is known."""
        if self.whole:
            return
        if covers(a):
            self.whole, self._elements = True, None
            self._pending.clear()
            return
        self._pending.append(a)
        if len(self._pending) >= PENDING:
            self._mark(a.storage)

    def elements(self, a: Access) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each element of a view whether it was written."""
        if self.whole:
            return np.ones(a.shape, bool)
        units = self._mark(a.storage).units(a)
        return units if units.ndim == len(a.shape) else np.logical_and.reduce(units, axis=-1)

    def _mark(self, storage: Storage) -> Elements:
        if self._elements is None:
            self._elements = Elements(storage)
        for a in self._pending:
            self._elements.units(a)[...] = True
        self._pending.clear()
        return self._elements
