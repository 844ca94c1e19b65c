"""Bringing operands of different shape but equal element order to one shape.

NKI wants equal element counts per partition, not equal shapes: (P, F) goes with (P, a, b). The
common shape is the coarsest one that every operand's strides can express without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Pattern = list[tuple[int, int]]  # (size, stride), outermost first


def refine(patterns: Sequence[Pattern], merge: bool = True) -> list[Pattern] | None:
    """The same patterns over one common shape, or None if dimensions cut across each other.

    Args:
        merge: join dimensions where all strides allow it, for fewer and longer ones.
    """
    cuts = {1}
    for pattern in patterns:
        size = 1
        for n, _ in reversed(pattern):
            size *= n
            cuts.add(size)
    points = sorted(cuts)
    for low, high in pairwise(points):
        if high % low:
            return None
    result = []
    for pattern in patterns:
        split: Pattern = []
        size, at = 1, 1  # `at` indexes points: the next cut above `size`
        for n, stride in reversed(pattern):
            end = size * n
            inner = 1
            while size < end:
                step = points[at] // size
                split.append((step, stride * inner))
                inner *= step
                size = points[at]
                at += 1
        result.append(split[::-1])
    return _merge(result) if merge else result


def _merge(patterns: list[Pattern]) -> list[Pattern]:
    """Join neighbouring dimensions wherever all patterns are contiguous across them."""
    rank = len(patterns[0])
    merged: list[Pattern] = [[] for _ in patterns]
    for d in range(rank):
        joinable = bool(merged[0]) and all(
            done[-1][1] == p[d][1] * p[d][0] for done, p in zip(merged, patterns)
        )
        for done, p in zip(merged, patterns):
            n, stride = p[d]
            if joinable:
                done[-1] = (done[-1][0] * n, stride)
            else:
                done.append((n, stride))
    return merged
