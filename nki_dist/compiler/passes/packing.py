"""Finding free space in a memory of quadrants times bytes, first fit with recycling.

Freed blocks wait in bins by exact size, because kernels allocate the same tiles again and again;
they go back to the map of free room only when a search fails. So most allocations cost one
dictionary look-up.

Doesn't model time: the caller frees blocks when their owner dies.
"""

from __future__ import annotations

from bisect import bisect_left


class Packer:
    """Free space of one memory.

    Args:
        capacity: bytes per partition.
        quadrants: groups of partitions that can be given out separately (at most 4).
        align: every block starts at a multiple of it.
        bank: blocks up to this size don't cross a multiple of it, larger ones start at one;
            0 for no banks.
    """

    def __init__(self, capacity: int, quadrants: int, align: int, bank: int) -> None:
        self._at = [0, capacity]  # boundaries of segments
        self._busy = [0, (1 << quadrants) - 1]  # which quadrants of [at[k], at[k + 1]) are taken
        self._quadrants = quadrants
        self._align = align
        self._bank = bank
        self._bins: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def reserve(self, start: int, size: int, quadrant: int, rows: int) -> None:
        """Take bytes out for good, whether or not they were taken before."""
        self._mark(start, start + size, ((1 << rows) - 1) << quadrant, True)

    def take(self, size: int, rows: int) -> tuple[int, int] | None:
        """Space for `size` bytes in `rows` quadrants: (byte, first quadrant), or None."""
        freed = self._bins.get((size, rows))
        if freed:
            return freed.pop()
        found = self._search(size, rows)
        if found is None and self._flush():
            found = self._search(size, rows)
        if found is not None:
            self._mark(found[0], found[0] + size, ((1 << rows) - 1) << found[1], True)
        return found

    def free(self, block: tuple[int, int], size: int, rows: int) -> None:
        """Give back what `take(size, rows)` returned."""
        self._bins.setdefault((size, rows), []).append(block)

    def _flush(self) -> bool:
        """Return what waits in bins to the map; False if nothing did."""
        any_freed = False
        for (size, rows), blocks in self._bins.items():
            for start, quadrant in blocks:
                self._mark(start, start + size, ((1 << rows) - 1) << quadrant, False)
                any_freed = True
        self._bins.clear()
        return any_freed

    def _starts(self, rows: int) -> range:
        """Hardware rule: 64 partitions start at 0 or 64, more than 64 at 0, 32 at any quadrant."""
        if rows == 1:
            return range(self._quadrants)
        if rows == 2:
            return range(0, self._quadrants, 2)
        return range(1)

    def _search(self, size: int, rows: int) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        for quadrant in self._starts(rows):
            start = self._first_fit(size, ((1 << rows) - 1) << quadrant)
            if start is not None and (best is None or start < best[0]):
                best = (start, quadrant)
        return best

    def _first_fit(self, size: int, mask: int) -> int | None:
        at, busy = self._at, self._busy
        run: int | None = None
        for k in range(len(at) - 1):
            if busy[k] & mask:
                run = None
                continue
            if run is None:
                run = at[k]
            start = self._fitted(run, size)
            if start + size <= at[k + 1]:
                return start
        return None

    def _fitted(self, start: int, size: int) -> int:
        start = -(-start // self._align) * self._align
        bank = self._bank
        if bank and (size > bank or start // bank != (start + size - 1) // bank):
            start = -(-start // bank) * bank
        return start

    def _split(self, byte: int) -> int:
        """Index of the segment that starts at `byte`, made if need be."""
        k = bisect_left(self._at, byte)
        if k == len(self._at) or self._at[k] != byte:
            self._at.insert(k, byte)
            self._busy.insert(k, self._busy[k - 1])
        return k

    def _mark(self, start: int, end: int, mask: int, taken: bool) -> None:
        first = self._split(start)
        last = self._split(end)
        for k in range(first, last):
            self._busy[k] = self._busy[k] | mask if taken else self._busy[k] & ~mask
        # Neighbours that became equal are joined, so the map stays as short as memory is used.
        for k in range(last, max(first, 1) - 1, -1):
            if self._busy[k] == self._busy[k - 1] and k < len(self._at) - 1:
                del self._at[k], self._busy[k]
