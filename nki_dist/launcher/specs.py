"""Lets TensorSpecs, shapes without contents, stand for arrays in the arguments of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.launcher.binding import Args, BoundArguments, Kwargs, PerRank, inputs_where
from nki_dist.launcher.tensor_spec import TensorSpec
from nki_dist.program.pytree import tree_map


class SpecArguments:
    """Replaces TensorSpecs in arguments by arrays without memory, and knows these again."""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}

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
        self._arrays[id(array)] = array
        return array

    def replaced_in(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """All arguments of a call without TensorSpecs."""
        named = {name: self.replaced(value) for name, value in kwargs.items()}
        return tuple(self.replaced(value) for value in args), named

    def unknown(self, bound: Sequence[BoundArguments]) -> set[int]:
        """Indices of the inputs that are a TensorSpec on some rank."""
        return inputs_where(bound, lambda array: id(array) in self._arrays)
