"""Bringing operands of different shape but equal element order to one shape.

NKI wants equal element counts per partition, not equal shapes: (P, F) goes with (P, a, b). The
common shape is the coarsest one that every operand's strides can express without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

from nki_dist.ops.place import joined, split

Dims = tuple[int, ...]


def refine(
    patterns: Sequence[tuple[Dims, Dims]], merge: bool = True
) -> tuple[Dims, list[Dims]] | None:
    """The common shape of patterns (shape, strides) of equally many elements, and their strides
    over it; None if dimensions cut across each other.

    Args:
        merge: join dimensions where all strides allow it, for fewer and longer ones.
    """
    cuts = _cuts([shape for shape, _ in patterns])
    if any(high % low for low, high in pairwise(cuts)):
        return None
    merged = [joined(*pattern) for pattern in patterns]
    if merge:
        cuts = _cuts([[n for n, _ in dims] for dims in merged])
    common = tuple([high // low for low, high in pairwise(cuts)])[::-1]
    found = [split(dims, common, 1) for dims in merged]
    return common, [strides for strides in found if strides is not None]  # none is


def _cuts(shapes: Sequence[Sequence[int]]) -> list[int]:
    """After how many elements, counted from the last, dimensions end."""
    return sorted({1}.union(*[accumulate(shape[::-1], mul) for shape in shapes]))
