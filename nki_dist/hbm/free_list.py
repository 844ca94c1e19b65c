"""Which parts of a stretch of memory nobody has: given from the beginning on, joined as they come
back."""

from __future__ import annotations

from bisect import insort


class FreeList:
    """Parts of the bytes from `start` to `end`."""

    def __init__(self, start: int, end: int) -> None:
        self._whole = (start, end)
        self._parts = [(start, end)]  # start and end of each, in order; none touch

    def take(self, nbytes: int) -> int | None:
        """Where the first so many bytes begin that nobody has; None if there are none."""
        for at, (start, end) in enumerate(self._parts):
            if end - start >= nbytes:
                self._parts[at : at + 1] = [(start + nbytes, end)] if end - start > nbytes else []
                return start
        return None

    def give_back(self, start: int, nbytes: int) -> None:
        """What `take` gave isn't needed any more."""
        parts, end = self._parts, start + nbytes
        insort(parts, (start, end))
        at = parts.index((start, end))
        if at + 1 < len(parts) and parts[at + 1][0] == end:
            end = parts.pop(at + 1)[1]
            parts[at] = (start, end)
        if at and parts[at - 1][1] == start:
            start = parts.pop(at - 1)[0]
            parts[at - 1] = (start, end)

    @property
    def is_whole(self) -> bool:
        """Whether nobody has anything."""
        return self._parts == [self._whole]
