"""Masks of operations: which part of each operand they leave.

Follows: "Supported Masking in NKI" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.compat.beta1.mask import Box, Mask, nothing
from nki_dist.compat.beta1.state import state
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import DType
from nki_dist.errors import NkiValidationError
from nki_dist.language import emit
from nki_dist.program import MemoryRegion, sbuf


def region(mask: Any, shape: tuple[int, ...]) -> Box | None:
    """What a mask leaves of a tile; None if that is everything."""
    if state().joined is not None:
        raise NkiValidationError(
            "`and` of two masks works only where a comparison is written after it, as in "
            "`i_p < n and i_f < m`; use &",
            code="branch-on-index",
        )
    if mask is None:
        return None
    if isinstance(mask, (bool, np.bool_)):
        return None if mask else nothing(shape)
    if not isinstance(mask, Mask):
        message = f"mask={mask!r}; allowed: comparisons of index expressions, such as i_p < 100"
        raise NkiValidationError(message, code="mask-shape")
    box = mask.over(shape).box()
    return None if box == whole(shape) else box


def box_of_operand(shape: tuple[int, ...], box: Box) -> Box:
    """The part of a broadcast operand that a box of the result needs."""
    mine = box[:1] + box[len(box) - len(shape) + 1 :] if len(shape) < len(box) else box
    return tuple((0, 1) if n == 1 else b for n, b in zip(shape, mine))


def common(operands: Sequence[Any]) -> tuple[int, ...]:
    """The shape that operands broadcast to: dimension 0 with 0, the others from the last."""
    tiles = [x for x in operands if isinstance(x, Tile)]
    rank = max(len(x.shape) for x in tiles)
    shape = [1] * rank
    for x in tiles:
        sizes = (x.shape[0], *(1,) * (rank - len(x.shape)), *x.shape[1:])
        shape = [max(a, b) for a, b in zip(shape, sizes)]
    return tuple(shape)


def whole(shape: tuple[int, ...]) -> Box:
    """The box of a whole tile."""
    return tuple((0, n) for n in shape)


def no_mask(what: str, mask: Any, shape: tuple[int, ...]) -> None:
    """Refuse a mask that leaves out elements."""
    if region(mask, shape) is not None:
        message = f"{what} with a mask that leaves out elements; slice the operands instead"
        raise NkiValidationError(message, code="mask-unsupported")


def taken(x: Any, box: Box | None) -> Any:
    """An operand, cut to its part of a box."""
    if not isinstance(x, Tile):
        return x
    return x.resolve(None if box is None else box_of_operand(x.shape, box))


# ---- masks that leave nothing: the operation isn't carried out ----------------------------------

# Loops of Beta 1 keep the shape of their body for every round, so kernels mask a step out that the
# last round must not take: `carry[...] = nl.copy(last, mask=j + 1 < n)`.


def is_empty(box: Box | None) -> bool:
    """Whether a mask leaves nothing; None leaves everything."""
    return box is not None and box[0] == (0, 0)


def untouched(
    operands: Sequence[Any],
    shape: tuple[int, ...],
    dtype: DType | None = None,
    memory: MemoryRegion = sbuf,
) -> Tile:
    """A tile of which nothing is written, and which no operation takes anything from.

    Args:
        operands: of the operation.
        shape: of its result.
        dtype: of its result; None where nothing tells it but the first operand.
        memory: where it is.
    """
    kind = next(x.dtype for x in operands if isinstance(x, Tile)) if dtype is None else dtype
    return Tile(emit.new(shape, kind, memory), mask=nothing(shape))
