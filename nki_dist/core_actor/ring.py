"""A queue of records in shared memory, from one process to one other.

Layout: two cache lines of counters, then the records, each in one piece; one that would cross the
end starts at the beginning again. Counters only grow and have one writer each:

    WRITTEN   bytes ever written    writer      LAUNCH    launch that RECORDS belongs to    writer
    READ      bytes ever read       reader      RECORDS   records written in it             writer
    ASLEEP    1 while the reader sleeps at its doorbell     reader

and two words of the writer that stay as they are: BEFORE, where the ring lies that this one takes
the place of, or 0; SIZE, the bytes of it all.

Order. The writer stores a record, then WRITTEN; the reader loads WRITTEN, then the record; and the
same with READ before a place is used again. Either side then decides by a counter of the other's
whether to wake it: the writer stores WRITTEN and loads ASLEEP, the reader stores ASLEEP and loads
WRITTEN, so one of them sees the other's store. x86 keeps stores in order, but not a store before a
later load, and ARM neither; so `Fence` stands between: a lock is released and taken again, which
processors with C11 atomics may move no access across. Counters are aligned words of 8 bytes, which
CPython stores and loads at once. (Only tried on x86-64.)
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

WRITTEN, LAUNCH, RECORDS, BEFORE, SIZE, READ, ASLEEP = 0, 1, 2, 3, 4, 8, 9
HEADER: Final = 128
WORD: Final = 8
_SKIP: Final = b"\0\0\0\0"
_ORDER: Final = "little" if np.little_endian else "big"


class Fence:
    """Accesses before a call come before those after it, for every process. One thread only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self) -> None:
        self._lock.release()
        self._lock.acquire()


class Ring:
    """See the module's docstring. A record's first 4 bytes are its length, in native order.

    Args:
        memory: uint8, at a cache line, zero before the first use.
    """

    def __init__(self, memory: np.ndarray) -> None:
        whole = memoryview(memory)  # type: ignore[arg-type]
        self.words = whole[:HEADER].cast("Q")
        self._data = whole[HEADER:]
        self.capacity = len(self._data) // WORD * WORD
        self.fence = Fence()
        self._at = self.words[WRITTEN]  # the writer's copy of WRITTEN, or the reader's of READ

    @classmethod
    def reading(cls, memory: np.ndarray) -> Ring:
        """The reader's side."""
        ring = cls(memory)
        ring._at = ring.words[READ]
        return ring

    # ---- the writer's side ----------------------------------------------------------------------

    def put(self, record: bytes, launch: int, counts: bool) -> bool:
        """Append a record of that launch; False if there isn't room for it now.

        Args:
            counts: whether it is one of the RECORDS.
        """
        words, at = self.words, self._at
        size = -(-len(record) // WORD) * WORD
        place = at % self.capacity
        skipped = self.capacity - place if place + size > self.capacity else 0
        if at + skipped + size - words[READ] > self.capacity:
            return False
        self.fence()  # nothing is overwritten before READ was seen to have gone past it
        if skipped:
            self._data[place : place + 4] = _SKIP
            place = 0
        self._data[place : place + len(record)] = record
        if counts:
            if words[LAUNCH] != launch:
                words[RECORDS] = 0
                words[LAUNCH] = launch
            words[RECORDS] += 1  # before it can be read: nobody has taken more than arrived
        self._at = at + skipped + size
        self.fence()
        words[WRITTEN] = self._at
        return True

    def reader_sleeps(self) -> bool:
        """Whether what was put before may have come too late for the reader to see it."""
        self.fence()
        return bool(self.words[ASLEEP])

    # ---- the reader's side ----------------------------------------------------------------------

    def peek(self) -> bytes | None:
        """A copy of the next record; None if there is none."""
        if self.words[WRITTEN] == self._at:
            return None
        self.fence()
        place = self._at % self.capacity
        if bytes(self._data[place : place + 4]) == _SKIP:
            self._at += self.capacity - place
            place = 0
        size = int.from_bytes(self._data[place : place + 4], _ORDER)
        return bytes(self._data[place : place + size])

    def pop(self, record: bytes) -> None:
        """The record that `peek` returned is done with."""
        self._at += -(-len(record) // WORD) * WORD
        self.fence()
        self.words[READ] = self._at
