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
from nki_dist.language import emit
from nki_dist.program.memory import sbuf


def untouched(operands: Sequence[Any], shape: tuple[int, ...]) -> Tile:
    """A tile of which nothing is written, and which no assignment copies from.

    Args:
        operands: of the operation; the tile has the dtype of the first one, as nothing tells more.
        shape: of its result.
    """
    dtype = next(x.dtype for x in operands if isinstance(x, Tile))
    nothing = Mask(shape, None, np.zeros((1,) * len(shape), bool))
    return Tile(emit.new(shape, dtype, sbuf), mask=nothing)
