"""`neuronxcc.nki.typing` of Beta 1: annotations, and descriptions of inputs for benchmarks.

`tensor[[250, 512], nl.float32]` describes an input by shape and dtype; `nki.benchmark` and
`nki.profile` make numbers for it. Every other form is an annotation without effect.

Follows: `nki.typing` as the profiling examples of the NKI 0.1 documentation use it (SDK 2.26).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist import dtypes


@dataclass(frozen=True)
class TensorType:
    """`tensor`, `mutable_tensor`, and either with a subscript.

    Attributes:
        shape, dtype: what `tensor[shape, dtype]` says, else None.
    """

    name: str
    shape: tuple[int, ...] | None = None
    dtype: Any = None

    def __getitem__(self, key: Any) -> TensorType:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], (list, tuple)):
            return TensorType(self.name, tuple(int(n) for n in key[0]), dtypes.of(key[1]))
        return TensorType(self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> TensorType:
        return self

    def __or__(self, other: Any) -> Any:
        return Any

    __ror__ = __or__

    def sample(self) -> Any:
        """An array of the described shape and dtype; itself if nothing is described."""
        if self.shape is None:
            return self
        numbers = np.random.default_rng(0).random(self.shape, np.float32)
        return numbers.astype(self.dtype.dtype)

    def __repr__(self) -> str:
        said = "" if self.shape is None else f"[{list(self.shape)}, {self.dtype}]"
        return f"nki.typing.{self.name}{said}"


tensor = TensorType("tensor")
mutable_tensor = TensorType("mutable_tensor")

__all__ = ["mutable_tensor", "tensor"]
