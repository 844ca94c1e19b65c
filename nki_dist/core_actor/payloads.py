"""Shared memory that payloads of messages lie in: written once, read in place, given back.

Who owns what. A payload that was sent is kept by the sender until the receiver clears a byte for
it, which it does when its arrays are gone (`_Lease`). Payloads that were received may be sent on;
then they are kept like own ones, and the first sender's byte is cleared later. Bytes are void when
a launch is over: no receiver clears one any more (`end`), and the sender forgets what it kept at
the next launch, which begins when the last one has ended everywhere (`begin`).

Payloads may also lie in the HBM stacks of the process, which are shared memory as well: nothing is
copied then, and their owner sees to it that they aren't written while somebody reads them
(`collectives.in_place`).

Everything belongs to the thread that runs cores, except that `map` may be called by another one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.core_actor.records import INLINE, Extent, parts
from nki_dist.hbm.heap import Heap
from nki_dist.hbm.plasma import Bytes, StackHandle, map_writable

KEPT: Final = 4096  # payloads that receivers may still read
STACKS: Final = 1 << 31  # the stacks' number; segments have lower ones

Segment = tuple[int, int]  # number of the process that owns it, and its number there


class _Lease:
    """Lives as long as the arrays of a received message; then the sender's byte is cleared."""

    __slots__ = ("byte", "launch", "payloads", "table")

    def __init__(self, payloads: Payloads, table: memoryview, byte: int) -> None:
        self.payloads, self.table, self.byte = payloads, table, byte
        self.launch = payloads.launch

    def __del__(self) -> None:
        if self.payloads.launch == self.launch:
            self.table[self.byte] = 0


class _Leased:
    """The base of an array of a received message."""

    def __init__(self, memory: np.ndarray, start: int, nbytes: int, lease: _Lease) -> None:
        self.memory, self.lease = memory, lease
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (memory.ctypes.data + start, True),  # payloads are never written again
        }


class Payloads:
    """See the module's docstring.

    Args:
        me: number of this process.

    Attributes:
        lends_stacks: whether other processes have been told where the stacks are.
    """

    def __init__(self, me: int) -> None:
        self.me = me
        self.launch = -1
        self._heap = Heap()
        self._stacks: tuple[Bytes, StackHandle] | None = None
        self.lends_stacks = False
        self._mapped: dict[Segment, Bytes] = {}
        self._handles: dict[Segment, StackHandle] = {}
        self._index: list[tuple[int, int, int, int]] = []  # address, size, owner, segment
        self._known_segments = 0
        self._table: memoryview | None = None
        self._kept: dict[int, Any] = {}
        self._bytes: list[int] = []

    # ---- life -----------------------------------------------------------------------------------

    def begin(self, launch: int, stacks: tuple[Bytes, StackHandle] | None) -> None:
        """A launch begins here; all others are over everywhere.

        Args:
            stacks: the object that the stacks of this process are in. Others map it when they first
                need to, and keep it mapped: for other stacks there has to be another `Payloads`.
        """
        if stacks is not self._stacks:
            self._stacks = stacks
            self._known_segments = -1
        self.launch = launch
        self._heap.try_again()
        self._kept.clear()
        if self._table is not None:
            self._table[:] = bytes(KEPT)
        if len(self._bytes) < KEPT:  # which takes longer than the rest of a small launch's start
            self._bytes = list(range(KEPT))

    def end(self) -> None:
        """The launch is over here: memory of others isn't ours any more."""
        self.launch = -1

    def close(self) -> None:
        """Let go of memory of others."""
        self.end()
        self._mapped.clear()

    @property
    def memory(self) -> int:
        """Bytes of the own segments, in use or not."""
        return sum(size for _, size in self._heap.segments())

    # ---- sending --------------------------------------------------------------------------------

    def array(self, shape: Any, dtype: Any) -> np.ndarray:
        """An uninitialised array, in shared memory if it is worth that and there is room."""
        dtype = np.dtype(dtype)
        shape = shape if isinstance(shape, tuple) else (shape,)
        nbytes = dtype.itemsize * prod(shape)
        block = self.take(nbytes) if nbytes > INLINE else None
        if block is None:
            return np.empty(shape, dtype)
        return np.asarray(block.view(dtype).reshape(shape))

    def take(self, nbytes: int) -> np.ndarray | None:
        """(nbytes,) uint8 of shared memory, uninitialised; None if there is no room."""
        if self._table is None and not self._make_table():
            return None
        self.collect()
        return self._heap.take(nbytes)

    def collect(self) -> None:
        """Forget payloads that their receivers don't need any more."""
        table = self._table
        if table is not None:
            done = [byte for byte in self._kept if not table[byte]]
            for byte in done:
                del self._kept[byte]
            self._bytes += done

    def lend(self, payload: Any) -> tuple[tuple[Extent, ...], int] | None:
        """Keep a payload until its receiver is done, copied to shared memory if need be.

        Returns:
            (where its arrays lie, the byte to clear); None if there is no room.
        """
        found, kept = [], []
        for array in parts(payload) or ():
            place = self.place(array) if array.flags.c_contiguous else None
            if place is None:
                block = self.take(array.nbytes)
                if block is None:
                    return None
                block.view(array.dtype).reshape(array.shape)[...] = array
                array, place = block, self.place(block)
            assert place is not None
            found.append(place)
            kept.append(array)
        if not self._bytes:
            self.collect()
        if not self._bytes:
            return None
        byte = self._bytes.pop()
        self._kept[byte] = kept
        assert self._table is not None
        self._table[byte] = 1
        return tuple(found), byte

    def take_back(self, byte: int) -> None:
        """What was lent wasn't sent."""
        del self._kept[byte]
        self._bytes.append(byte)

    def place(self, array: np.ndarray) -> Extent | None:
        """Where in shared memory an array lies, if it does."""
        own = self._heap.segments()
        if len(own) != self._known_segments:
            self._make_index(own)
        address = array.ctypes.data
        at = bisect.bisect_right(self._index, address, key=lambda entry: entry[0]) - 1
        if at >= 0:
            start, size, owner, segment = self._index[at]
            if address + array.nbytes <= start + size:
                return Extent(owner, segment, address - start)
        return None

    def handles(self, segments: Iterable[Segment]) -> dict[Segment, StackHandle]:
        """With which another process maps them."""
        return {
            (owner, n): self._handle(n) if owner == self.me else self._handles[owner, n]
            for owner, n in segments
        }

    def _handle(self, segment: int) -> StackHandle:
        if segment != STACKS:
            return self._heap.handle(segment)
        assert self._stacks is not None
        self.lends_stacks = True
        return self._stacks[1]

    def _make_index(self, own: list[tuple[int, int]]) -> None:
        entries = [(start, size, self.me, n) for n, (start, size) in enumerate(own)]
        self._known_segments = len(own)  # before looking: what is mapped meanwhile sets it to -1
        if self._stacks is not None:
            memory = self._stacks[0]
            entries.append((memory.ctypes.data, memory.size, self.me, STACKS))
        for (owner, n), memory in list(self._mapped.items()):
            entries.append((memory.ctypes.data, memory.size, owner, n))
        self._index = sorted(entries)

    def _make_table(self) -> bool:
        """The bytes that receivers clear are at the beginning of the first segment."""
        table = self._heap.take(KEPT)
        if table is None:
            return False
        place = self.place(table)
        assert place == Extent(self.me, 0, 0)
        table[:] = 0
        self._table = memoryview(table)  # type: ignore[arg-type]
        return True

    # ---- receiving ------------------------------------------------------------------------------

    def map(self, handles: Mapping[Segment, StackHandle]) -> None:
        """Map segments of other processes; any thread may.

        Raises:
            LaunchError: one is gone, and its process with it.
        """
        for key, handle in handles.items():
            if key not in self._mapped:
                self._handles[key] = handle
                self._mapped[key] = map_writable(handle)
                self._known_segments = -1  # the index is stale

    def mapped(self, owner: int, segment: int) -> np.ndarray:
        """The memory of a segment of another process, (capacity,) uint8."""
        return self._mapped[owner, segment]

    def borrow(
        self, sender: int, places: list[tuple[Extent, int]], byte: int
    ) -> list[np.ndarray] | None:
        """The arrays of a message, read-only uint8; the byte is cleared when they are gone.

        Returns:
            None if one lies in memory that isn't mapped yet.
        """
        memories = [self._memory(place) for place, _ in places]
        if any(memory is None for memory in memories):
            return None
        table = memoryview(self.mapped(sender, 0))  # type: ignore[arg-type]
        lease = _Lease(self, table, byte)
        return [
            np.asarray(_Leased(memory, place.offset, nbytes, lease))
            for memory, (place, nbytes) in zip(memories, places)
        ]

    def _memory(self, place: Extent) -> Any:
        if place.owner == self.me:
            if place.segment == STACKS:
                assert self._stacks is not None
                return self._stacks[0]
            return self._heap.memory(place.segment)
        return self._mapped.get((place.owner, place.segment))
