"""Arithmetic of collectives: what is added in which type, and where it is rounded.

Floats are widened to float32, partial results stay float32 on their way through an algorithm, and
the result is rounded once, when it is complete. (AWS doesn't document where its DMA engines round
partial sums.) Integers are reduced in their own type: exactly, and wrapping as ALU operators do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist.collectives.party import Array
from nki_dist.dtypes import DType, float32, float64
from nki_dist.dtypes.casts import converter
from nki_dist.isa.alu import ALU


@dataclass(frozen=True)
class Reduction:
    """One operator on one dtype.

    Attributes:
        dtype: of the tensors.
        combine: `combine(a, b, out)`; `out` may be an operand.
        make: `make(shape, dtype)`, an uninitialised array.
        wide: the type partial results have.
        to_wide, from_wide: `f(out, array)` converts to it, and back; None if it is the tensor's.
    """

    dtype: DType
    combine: Callable[[Array, Array, Array], None]
    make: Callable[..., Array]
    wide: np.dtype[Any]
    to_wide: Callable[[Array, Array], None] | None = None
    from_wide: Callable[[Array, Array], None] | None = None

    def empty(self, shape: Any) -> Array:
        """An array for partial results."""
        return self.make(shape, self.wide)

    def widen(self, view: Array) -> Array:
        """A tensor's view as a new contiguous array of the type partial results have."""
        out = self.empty(view.shape)
        (self.to_wide or np.copyto)(out, view)
        return out

    def finish(self, total: Array) -> Array:
        """A complete result as an array of the tensor's storage type."""
        if self.from_wide is None:
            return total
        out = self.make(total.shape, self.dtype.storage)
        self.from_wide(out, total)
        return out

    def fold(self, arrays: Sequence[Array]) -> Array:
        """`((a0 op a1) op a2) ...` as a new array, or `a0` itself if it is alone."""
        if len(arrays) == 1:
            return arrays[0]
        total = self.empty(arrays[0].shape)
        self.combine(arrays[0], arrays[1], total)
        for array in arrays[2:]:
            self.combine(total, array, total)
        return total


def reduction(op: str, dtype: DType, make: Callable[..., Array] = np.empty) -> Reduction:
    """The operator of that name ("add", "minimum", "maximum") on tensors of `dtype`.

    Args:
        make: `make(shape, dtype)`, an uninitialised array that may be sent.
    """
    row = ALU[op]
    exact = dtype.is_integer
    function = row.integer if exact else row.f32
    assert function is not None

    def combine(a: Array, b: Array, out: Array) -> None:
        with np.errstate(all="ignore"):  # NaN from unused lanes is normal
            function(a, b, out)

    if exact or dtype in (float32, float64):
        return Reduction(dtype, combine, make, dtype.storage)
    to_wide, from_wide = _quiet(converter(dtype, float32)), _quiet(converter(float32, dtype))
    return Reduction(dtype, combine, make, np.dtype(np.float32), to_wide, from_wide)


def _quiet(convert: Callable[..., Any]) -> Callable[[Array, Array], None]:
    def quiet(out: Array, array: Array) -> None:
        with np.errstate(all="ignore"):
            convert(out, array)

    return quiet
