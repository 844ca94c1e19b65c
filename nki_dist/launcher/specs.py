"""Arguments without contents: descriptions of arrays, where only shapes and dtypes matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.errors import LaunchError
from nki_dist.launcher.binding import Args, BoundArguments, Kwargs, PerRank
from nki_dist.program.pytree import tree_map


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


class SpecArguments:
    """Replaces TensorSpecs in arguments by arrays without memory, and knows these again."""

    def __init__(self) -> None:
        self._made: dict[int, np.ndarray] = {}

    def replaced(self, value: Any) -> Any:
        """An argument without TensorSpecs."""
        if isinstance(value, PerRank):
            values = value.values
            if callable(values):
                return PerRank(lambda rank: self.replaced(values(rank)))
            return PerRank([self.replaced(v) for v in values])
        return tree_map(self._leaf, value, lambda leaf: isinstance(leaf, (TensorSpec, PerRank)))

    def _leaf(self, leaf: Any) -> Any:
        if not isinstance(leaf, TensorSpec):
            return leaf
        array = leaf.hollow()  # one each: an array that is passed twice is one tensor
        self._made[id(array)] = array
        return array

    def replaced_in(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """All arguments of a call without TensorSpecs."""
        named = {name: self.replaced(value) for name, value in kwargs.items()}
        return tuple(self.replaced(value) for value in args), named

    def unknown(self, bound: Sequence[BoundArguments]) -> set[int]:
        """Indices of the inputs that are a TensorSpec on some rank."""
        found: set[int] = set()
        for b in {id(b): b for b in bound}.values():
            found |= {n for n, array in enumerate(b.originals) if id(array) in self._made}
        return found
