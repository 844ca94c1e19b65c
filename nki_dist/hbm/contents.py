"""What tensors that stay in HBM hold: copied in and out, and filled, wherever their regions are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from nki_dist.hbm.layout import Given

Place: TypeAlias = "tuple[int, int]"
"""The number of a region, and bytes from its beginning."""
Places: TypeAlias = "tuple[tuple[tuple[str, int], Place], ...]"
"""Of a launch: (role, index) of each tensor that stays in HBM, and its place."""
Fill: TypeAlias = "tuple[Place, int, int, np.dtype[Any]]"
"""A tensor's place and bytes, and what bits all elements of which unsigned type get."""


class Memories(Protocol):
    """Where regions of some ranks are."""

    def memory(self, rank: int, number: int) -> np.ndarray: ...


def made(value: Given) -> np.ndarray:
    """An array that may have to be made."""
    return value() if callable(value) else value


def bits(value: Given) -> np.ndarray:
    """An array's bytes, as they lie in HBM."""
    return np.ascontiguousarray(made(value)).reshape(-1).view(np.uint8)


def write(regions: Memories, place: Place, values: Mapping[int, Given]) -> None:
    """Copy a tensor in: of each rank an array, or what makes it when it is called."""
    number, at = place
    for rank, value in values.items():
        raw = bits(value)
        regions.memory(rank, number)[at : at + raw.size] = raw


def read(regions: Memories, place: Place, nbytes: int, ranks: Sequence[int]) -> list[np.ndarray]:
    """Copies of a tensor's bits in these ranks, (nbytes,) uint8."""
    number, at = place
    return [regions.memory(rank, number)[at : at + nbytes].copy() for rank in ranks]


def fill(regions: Memories, fills: Sequence[Fill], ranks: Sequence[int]) -> None:
    """Poison tensors that nobody has written."""
    for (number, at), nbytes, pattern, raw in fills:
        for rank in ranks:
            regions.memory(rank, number)[at : at + nbytes].view(raw).fill(pattern)
