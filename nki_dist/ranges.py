"""Many ranks, or cores, in a few words: `ranks 0-199, 201-255`.

Every message that lists ranks takes its words from here, so none grows with the world.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

PIECES: Final = 10  # ranges that a list has before it is cut short
LISTED: Final = 8  # items of a value that is written as it is


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in ascending order, neighbours as a range: "0-199, 201-255"."""
    pieces: list[list[int]] = []
    for n in sorted(set(numbers)):
        if pieces and pieces[-1][1] == n - 1:
            pieces[-1][1] = n
        else:
            pieces.append([n, n])
    shown = [str(a) if a == b else f"{a}-{b}" if b > a + 1 else f"{a}, {b}" for a, b in pieces]
    left = sum(b - a + 1 for a, b in pieces[PIECES:])
    return ", ".join(shown[:PIECES]) + (f" and {left:,} more" if left else "")


def named(numbers: Iterable[int], noun: str = "rank") -> str:
    """The same with the noun: "rank 3", "ranks 0-2, 5"."""
    several = sorted(set(numbers))
    return f"{noun}{'s' * (len(several) != 1)} {ranges(several)}"


def shown(value: Any) -> str:
    """An argument of a message; long lists of ranks as ranges, other long ones cut short."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) <= LISTED:
        if isinstance(value, list) and any(isinstance(v, (list, tuple)) for v in value):
            return "[" + ", ".join(map(shown, value)) + "]"
        return str(value)
    if all(isinstance(v, int) for v in value):
        if list(value) == sorted(value):
            return f"[{ranges(value)}]"
        return f"[{', '.join(map(str, value[:LISTED]))}, ... ({len(value):,} in all)]"
    return f"[{', '.join(map(shown, value[:4]))}, ... ({len(value):,} in all)]"
