"""Masks of operations: which part of each operand they leave.

Follows: "Supported Masking in NKI" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.compat.beta1.index import Index
from nki_dist.compat.beta1.mask import Box, Mask, Term
from nki_dist.compat.beta1.state import state
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import DType
from nki_dist.errors import NkiValidationError
from nki_dist.language import emit
from nki_dist.program import MemoryRegion, sbuf


def region(mask: Any, shape: tuple[int, ...]) -> Mask | None:
    """The mask of a tile; None if it keeps everything."""
    if state().joined is not None:
        raise NkiValidationError(
            "`and` of two masks works only where a comparison is written after it, as in "
            "`i_p < n and i_f < m`; use &",
            code="branch-on-index",
        )
    if mask is None or mask is True:
        return None
    if mask is False or isinstance(mask, np.bool_):
        return None if mask else Mask(shape, None, np.zeros((1,) * len(shape), bool))
    if not isinstance(mask, Mask):
        message = f"mask={mask!r}; allowed: comparisons of index expressions, such as i_p < 100"
        raise NkiValidationError(message, code="mask-shape")
    found = mask.over(shape)
    return None if found.box() == whole(shape) else found


def box_mask(shape: tuple[int, ...], box: Box) -> Mask:
    """A mask that is a box."""
    terms = []
    for axis, (lo, hi) in enumerate(box):
        steps = tuple(int(d == axis) for d in range(len(shape)))
        terms.append(Term(Index(shape, -lo, steps), "greater_equal"))
        terms.append(Term(Index(shape, -hi, steps), "less"))
    return Mask(shape, tuple(terms))


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


def rectangle(name: str, mask: Any, shape: tuple[int, ...]) -> Box | None:
    """The box a mask leaves, None for everything."""
    kept = region(mask, shape)
    if kept is None:
        return None
    box = kept.box()
    if box is None or box[0] == (0, 0):
        raise NkiValidationError(
            f"nisa.{name}: the mask leaves {'nothing' if box else 'no box'} of shape {shape}; "
            "allowed: bounds of each index, such as i_p < 100",
            code="mask-shape",
            numbers={"shape": shape},
        )
    return box


def taken(x: Any, box: Box | None) -> Any:
    """An operand, cut to its part of a box."""
    if not isinstance(x, Tile):
        return x
    return x.resolve(None if box is None else box_of_operand(x.shape, box))


# ---- masks that leave nothing: the operation isn't carried out ----------------------------------

# Loops of Beta 1 keep the shape of their body for every round, so kernels mask a step out that the
# last round must not take: `carry[...] = nl.copy(last, mask=j + 1 < n)`.


def leaves_nothing(mask: Any) -> bool:
    """Whether a mask, or a condition that Python knew, leaves nothing."""
    if isinstance(mask, Mask):
        return mask.hull()[0] == (0, 0)
    return isinstance(mask, (bool, np.bool_)) and not mask


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
    nothing = Mask(shape, None, np.zeros((1,) * len(shape), bool))
    return Tile(emit.new(shape, kind, memory), mask=nothing)
