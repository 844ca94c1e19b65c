"""What an operation gives whose mask leaves nothing: it isn't carried out.

Loops of Beta 1 keep the shape of their body for every round, so kernels mask a step out that the
last round must not take: `carry[...] = nl.copy(last, mask=j + 1 < n)`.

Follows: "Supported Masking in NKI" of the NKI 0.1 documentation (SDK 2.26): what a mask leaves out
isn't computed, and its elements of a new tile are undefined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.compat.beta1.mask import Mask
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import DType
from nki_dist.language import emit
from nki_dist.program import MemoryRegion, sbuf


def leaves_nothing(mask: Any) -> bool:
    """Whether a mask, or a condition that Python knew, leaves nothing."""
    if isinstance(mask, Mask):
        return mask.hull()[0] == (0, 0)
    return isinstance(mask, (bool, np.bool_)) and not mask


def untouched(
    operands: Sequence[Any],
    shape: tuple[int, ...],
    dtype: DType | None = None,
    region: MemoryRegion = sbuf,
) -> Tile:
    """A tile of which nothing is written, and which no operation takes anything from.

    Args:
        operands: of the operation.
        shape: of its result.
        dtype: of its result; None where nothing tells it but the first operand.
        region: where it is.
    """
    kind = next(x.dtype for x in operands if isinstance(x, Tile)) if dtype is None else dtype
    nothing = Mask(shape, None, np.zeros((1,) * len(shape), bool))
    return Tile(emit.new(shape, kind, region), mask=nothing)
