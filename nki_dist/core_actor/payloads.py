"""Shared memory that payloads of messages lie in: written once, read in place, given back.

Who owns what. A payload that was sent is kept by the sender until the receiver clears a byte for
it, which it does when its arrays are gone (`_Lease`). Payloads that were received may be sent on;
then they are kept like own ones, and the first sender's byte is cleared later. Bytes are void when
a launch is over: no receiver clears one any more (`end`), and the sender forgets what it kept at
the next launch, which begins when the last one has ended everywhere (`begin`).

They lie in the memory that all processes of the world and node have (`node_memory.py`), or in the
HBM stacks of a process, which are shared memory as well: nothing is copied then, and their owner
sees to it that they aren't written while somebody reads them (`collectives.in_place`). Stacks are
objects of the store, which others must have been told of before they get records that need it.

Everything belongs to the thread that runs cores, except that `map` may be called by another one.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.core_actor.heap import Heap
from nki_dist.core_actor.node_memory import NodeMemory, left_bytes
from nki_dist.core_actor.records import COMMON, INLINE, Extent, parts
from nki_dist.hbm.alias import Alias
from nki_dist.hbm.plasma import Bytes, StackHandle, map_writable

MOST_LENT: Final = 4096  # payloads that receivers may still read


class _Lease:
    """Lives as long as the arrays of a received message; then the sender's byte is cleared."""

    __slots__ = ("byte", "launch", "payloads", "table")

    def __init__(self, payloads: Payloads, table: memoryview, byte: int) -> None:
        self.payloads, self.table, self.byte = payloads, table, byte
        self.launch = payloads.launch

    def __del__(self) -> None:
        if self.payloads.launch == self.launch:
            self.table[self.byte] = 0


class Payloads:
    """See the module's docstring.

    Args:
        me: number of this process.
        memory: of the processes of this node; None if there are no others.

    Attributes:
        lends_stacks: whether other processes have been told where the stacks are.
    """

    def __init__(self, me: int, memory: NodeMemory | None) -> None:
        self.me = me
        self.launch = -1
        self._memory = memory
        self._heap: Heap | None = None
        self._stacks: tuple[Bytes, StackHandle] | None = None
        self.lends_stacks = False
        self._mapped: dict[int, Bytes] = {}  # stacks of others, by their process
        self._handles: dict[int, StackHandle] = {}
        self._index: list[tuple[int, int, int]] | None = None  # address, size, owner of stacks
        self._table: memoryview | None = None
        self._lent: dict[int, Any] = {}
        self._bytes: list[int] = []
        if memory is not None:
            start = memory.begins(me)
            self._table = self._bytes_of(me)
            end = (me + 1) * memory.part
            self._heap = Heap(memory.bytes, start + MOST_LENT, end, left_bytes)

    # ---- life -----------------------------------------------------------------------------------

    def begin(self, launch: int, stacks: tuple[Bytes, StackHandle] | None) -> None:
        """A launch begins here; all others are over everywhere.

        Args:
            stacks: the object that the stacks of this process are in. Others map it when they first
                need to, and keep it mapped: for other stacks there has to be another `Payloads`.
        """
        if stacks is not self._stacks:
            self._stacks = stacks
            self._index = None
        self.launch = launch
        self._lent.clear()
        if self._table is not None:
            self._table[:] = bytes(MOST_LENT)
        # Making the list takes longer than the rest of a small launch's start.
        if len(self._bytes) < MOST_LENT:
            self._bytes = list(range(MOST_LENT))

    def end(self) -> None:
        """The launch is over here: memory of others isn't ours any more."""
        self.launch = -1

    def close(self) -> None:
        """Let go of memory of others."""
        self.end()
        self._mapped.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of the own part, in use or not."""
        return 0 if self._heap is None else self._heap.nbytes

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
        if self._heap is None:
            return None
        self.collect()
        return self._heap.take(nbytes)

    def collect(self) -> None:
        """Forget payloads that their receivers don't need any more."""
        table = self._table
        if table is not None:
            done = [byte for byte in self._lent if not table[byte]]
            for byte in done:
                del self._lent[byte]
            self._bytes += done

    def lend(self, payload: Any) -> tuple[tuple[Extent, ...], int] | None:
        """Keep a payload until its receiver is done, copied to shared memory if need be.

        Returns:
            (where its arrays lie, the byte to clear); None if there is no room.
        """
        found, lent = [], []
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
            lent.append(array)
        if not self._bytes:
            self.collect()
        if not self._bytes:
            return None
        byte = self._bytes.pop()
        self._lent[byte] = lent
        assert self._table is not None
        self._table[byte] = 1
        return tuple(found), byte

    def take_back(self, byte: int) -> None:
        """What was lent wasn't sent."""
        del self._lent[byte]
        self._bytes.append(byte)

    def place(self, array: np.ndarray) -> Extent | None:
        """Where in shared memory an array lies, if it does."""
        at = None if self._memory is None else self._memory.place(array)
        if at is not None:
            return Extent(COMMON, at)
        if self._index is None:
            self._make_index()
        assert self._index is not None
        address = array.ctypes.data
        found = bisect.bisect_right(self._index, address, key=lambda entry: entry[0]) - 1
        if found >= 0:
            start, size, owner = self._index[found]
            if address + array.nbytes <= start + size:
                return Extent(owner, address - start)
        return None

    def handle(self, owner: int) -> StackHandle:
        """With which another process maps the stacks of one."""
        if owner != self.me:
            return self._handles[owner]
        assert self._stacks is not None
        self.lends_stacks = True
        return self._stacks[1]

    def _make_index(self) -> None:
        self._index = []  # before looking: what is mapped meanwhile sets it to None
        entries = [(m.ctypes.data, m.size, owner) for owner, m in list(self._mapped.items())]
        if self._stacks is not None:
            memory = self._stacks[0]
            entries.append((memory.ctypes.data, memory.size, self.me))
        self._index = sorted(entries)

    def _bytes_of(self, process: int) -> memoryview:
        """Those that receivers of a process's payloads clear."""
        assert self._memory is not None
        start = self._memory.begins(process)
        return memoryview(self._memory.bytes[start : start + MOST_LENT])  # type: ignore[arg-type]

    # ---- receiving ------------------------------------------------------------------------------

    def map(self, handles: Mapping[int, StackHandle]) -> None:
        """Map stacks of other processes; any thread may.

        Raises:
            LaunchError: they are gone, and their process with them.
        """
        for owner, handle in handles.items():
            if owner not in self._mapped:
                self._handles[owner] = handle
                self._mapped[owner] = map_writable(handle)
                self._index = None

    def borrow(
        self, sender: int, places: list[tuple[Extent, int]], byte: int
    ) -> list[np.ndarray] | None:
        """The arrays of a message, read-only uint8; the byte is cleared when they are gone.

        Returns:
            None if one lies in stacks that aren't mapped yet.
        """
        found = [self._address(place) for place, _ in places]
        if None in found:
            return None
        lease = _Lease(self, self._bytes_of(sender), byte)
        return [
            # Payloads are never written again.
            np.asarray(Alias(address, nbytes, (memory, lease), read_only=True))
            for (memory, address), (_, nbytes) in zip(filter(None, found), places)
        ]

    def _address(self, place: Extent) -> tuple[Bytes, int] | None:
        """What keeps the bytes at a place mapped, and where they are in this process."""
        if place.owner == COMMON:
            assert self._memory is not None
            return self._memory.bytes, self._memory.address + place.offset
        if place.owner == self.me:
            assert self._stacks is not None
            memory: Bytes | None = self._stacks[0]
        else:
            memory = self._mapped.get(place.owner)
        return None if memory is None else (memory, memory.ctypes.data + place.offset)
