"""A line of transfers in which those whose turn comes first go first, but may be passed."""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from typing import Final

LOOK: Final = 16  # transfers in line that are asked whether they can go


class Line:
    """Turns of transfers that wait for DMA engines; only the first `LOOK` of them may go.

    Attributes:
        head: those that may, in order.

    Invariant: the others come after all of these, and there are none while there is room here.
    """

    __slots__ = ("_rest", "head")

    def __init__(self) -> None:
        self.head: list[int] = []
        self._rest: list[int] = []  # a heap

    def reaches(self, at: int) -> bool:
        """Whether a newcomer may go at once."""
        return len(self.head) < LOOK or at < self.head[-1]

    def join(self, at: int) -> None:
        if not self.reaches(at):
            heappush(self._rest, at)
            return
        if len(self.head) == LOOK:
            heappush(self._rest, self.head.pop())
        insort(self.head, at)

    def leave(self, n: int) -> None:
        """The one at place `n` of the head goes; the next comes up."""
        del self.head[n]
        if self._rest:
            self.head.append(heappop(self._rest))

    def everyone(self) -> list[int]:
        return self.head + self._rest
