"""Which parts of a stretch of memory nobody has: given from the beginning on, joined as they come
back."""

from __future__ import annotations

from bisect import insort
from collections import deque


class FreeList:
    """Parts of the bytes from `start` to `end`.

    Attributes:
        back: places, (start, bytes), whose owners are gone. Owners may be collected in any thread,
            so they only leave their place here, and whoever asks next puts it back.
    """

    def __init__(self, start: int, end: int) -> None:
        self._whole = (start, end)
        self._parts = [(start, end)]  # start and end of each, in order; none touch
        self.back: deque[tuple[int, int]] = deque()

    def take(self, nbytes: int) -> int | None:
        """Where the first so many bytes begin that nobody has; None if there are none."""
        for at, (start, end) in enumerate(self._there()):
            if end - start >= nbytes:
                self._parts[at : at + 1] = [(start + nbytes, end)] if end - start > nbytes else []
                return start
        return None

    @property
    def taken(self) -> int:
        """Bytes that somebody has."""
        start, end = self._whole
        return end - start - sum(end - start for start, end in self._there())

    def _there(self) -> list[tuple[int, int]]:
        """The parts, with what has come back."""
        parts = self._parts
        while self.back:
            start, nbytes = self.back.popleft()
            end = start + nbytes
            insort(parts, (start, end))
            at = parts.index((start, end))
            if at + 1 < len(parts) and parts[at + 1][0] == end:
                end = parts.pop(at + 1)[1]
                parts[at] = (start, end)
            if at and parts[at - 1][1] == start:
                start = parts.pop(at - 1)[0]
                parts[at - 1] = (start, end)
        return parts
