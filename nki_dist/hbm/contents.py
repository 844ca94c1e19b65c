"""What tensors that stay in HBM hold: copied in and out, and filled, wherever their regions are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nki_dist.hbm.layout import Given, as_array

Place: TypeAlias = "tuple[int, int]"
"""The number of a region, and bytes from its beginning."""
Places: TypeAlias = "tuple[tuple[tuple[str, int], Place], ...]"
"""Of a launch: (role, index) of each tensor that stays in HBM, and its place."""
Fill: TypeAlias = "tuple[Place, int, int, np.dtype[Any]]"
"""A tensor's place and bytes, and what bits all elements of which unsigned type get."""


def bits(value: Given) -> np.ndarray:
    """An array's bytes, as they lie in HBM."""
    return np.ascontiguousarray(as_array(value)).reshape(-1).view(np.uint8)


class Memories(ABC):
    """Where the regions of some ranks are.

    Attributes:
        ranks: their numbers.
    """

    ranks: Sequence[int]

    @abstractmethod
    def memory(self, rank: int, number: int) -> np.ndarray:
        """The bytes of a rank's region, by its number."""

    def write(self, place: Place, values: Sequence[Given] | Mapping[int, Given]) -> None:
        """Copy a tensor in: of each rank an array, or what makes it when it is called."""
        number, at = place
        for rank in self.ranks:
            raw = bits(values[rank])
            self.memory(rank, number)[at : at + raw.size] = raw

    def read(self, place: Place, nbytes: int) -> list[np.ndarray]:
        """Copies of a tensor's bits in the order of `ranks`, (nbytes,) uint8."""
        number, at = place
        return [self.memory(rank, number)[at : at + nbytes].copy() for rank in self.ranks]

    def fill(self, fills: Sequence[Fill]) -> None:
        """Poison tensors that nobody has written."""
        for (number, at), nbytes, pattern, raw in fills:
            for rank in self.ranks:
                self.memory(rank, number)[at : at + nbytes].view(raw).fill(pattern)
