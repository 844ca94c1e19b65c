"""How the cores of a process reach those of other processes: rings of the own node, or Ray.

A ring (`ring.py`) to each process of the node that this one sends to, made when it first does and
made anew, four times as large, when it is full. Rings, and payloads too large for them, lie in the
sender's `Heap`; receivers read payloads where they are. Everything else goes as an actor call: to
other nodes, and what a ring or the heap has no room for. So a send never waits. Receivers sort by
sequence number, and needn't know which way a message came.

Who owns what. Everything here belongs to the thread that runs cores, with two exceptions: `arrived`
reads counters, and `attach` adds to what is mapped, also when no cores run, because messages to
cores that have finished count as arrived. Actor calls come through `inbox`, whose bell they ring. A
payload that was sent is kept by the sender until the receiver clears a byte for it, which it does
when its arrays are gone. Payloads that were received may be sent on; then they are kept like own
ones, and the first sender's byte is cleared later. Bytes are void when a launch is over: no
receiver clears one any more (`end`), and the sender forgets what it kept at the next launch, which
begins when the last one has ended everywhere.

Nobody sleeps through a message: before it sleeps, a process says so in all its rings and looks into
them once more, and who writes to a ring looks afterwards whether its reader sleeps (see `Ring`). It
wakes from time to time anyhow.
"""

from __future__ import annotations

import bisect
import os
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.core_actor.bell import Bell, Ringer
from nki_dist.core_actor.messages import Message
from nki_dist.core_actor.records import INLINE, Decoder, Encoder, Place, parts
from nki_dist.core_actor.ring import ASLEEP, HEADER, Ring
from nki_dist.hbm.heap import Heap
from nki_dist.hbm.plasma import MappedStack, StackHandle, map_writable

FIRST_RING: Final = 128 << 10
LARGEST_RING: Final = 16 << 20
KEPT: Final = 4096  # payloads that receivers may still read
PATIENCE: Final = 0.25  # seconds of sleep without being woken
LOOKS: Final = 5  # before sleeping, with a chance for others to run in between


@dataclass(frozen=True)
class Net:
    """All processes of a world.

    Attributes:
        token: names this set of processes; a process that dies and is replaced makes another.
        actors: of all processes.
        me: own number among them.
        process_of: number of the process that has a core.
        near: processes that are reached through rings.
    """

    token: str
    actors: Sequence[Any]
    me: int
    process_of: Mapping[int, int]
    near: frozenset[int]

    def bell(self, process: int) -> str:
        return f"nki-{self.token}-{process}"


@dataclass(frozen=True)
class Attach:
    """What a process is told before it gets records that need it.

    Attributes:
        segments: memory of processes, by (owner, number).
        ring: of records from `sender`; (segment of the sender, start, length).
    """

    token: str
    sender: int
    segments: dict[tuple[int, int], StackHandle]
    ring: tuple[int, int, int] | None = None


class _Lease:
    """Lives as long as the arrays of a received message; then the sender's byte is cleared."""

    __slots__ = ("byte", "launch", "links", "table")

    def __init__(self, links: Links, table: memoryview, byte: int) -> None:
        self.links, self.table, self.byte, self.launch = links, table, byte, links.launch

    def __del__(self) -> None:
        if self.links.launch == self.launch:
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


@dataclass
class _Outgoing:
    """The way to one process: its ring, and which segments it knows."""

    ring: Ring
    encoder: Encoder
    size: int
    known: set[tuple[int, int]]


class Links:
    """See the module's docstring.

    Args:
        net: all processes of the world.
        bell: of this process.
        inbox: (launch, message) from actor calls, (launch, None) if a launch is given up.
    """

    def __init__(self, net: Net, bell: Bell, inbox: queue.SimpleQueue[Any]) -> None:
        self.net = net
        self.launch = -1
        self.sent = 0
        self._bell, self._inbox = bell, inbox
        self._ringer = Ringer()
        self._heap = Heap()
        self._out: dict[int, _Outgoing] = {}
        self._retired: list[Ring] = []  # replaced by larger ones, but perhaps not read to the end
        self._incoming: tuple[tuple[Ring, Decoder], ...] = ()
        self._mapped: dict[tuple[int, int], MappedStack] = {}
        self._handles: dict[tuple[int, int], StackHandle] = {}
        self._index: list[tuple[int, int, int, int]] = []  # address, size, owner, segment
        self._known_segments = 0
        self._early: list[tuple[int, Message | None]] = []
        self._table: memoryview | None = None
        self._kept: dict[int, Any] = {}
        self._bytes: list[int] = []

    # ---- life -----------------------------------------------------------------------------------

    def begin(self, launch: int) -> None:
        """A launch begins here; all others are over everywhere."""
        self.launch = launch
        self.sent = 0
        self._heap.try_again()
        self._early = [(n, m) for n, m in self._early if n >= launch]
        self._kept.clear()
        if self._table is not None:
            self._table[:] = bytes(KEPT)
        self._bytes = list(range(KEPT))

    def end(self) -> None:
        """The launch is over here: memory of others isn't ours any more."""
        self.launch = -1

    def close(self) -> None:
        """Let go of everything that is shared."""
        self.end()
        self._ringer.close()
        self._bell.close()
        self._out.clear()
        self._incoming = ()
        self._mapped.clear()

    @property
    def bell(self) -> str:
        """Name of the bell to ring when there is something in the inbox."""
        return self._bell.name

    def arrived(self, launch: int) -> int:
        """Messages of a launch that are or were in rings to here; any thread may ask."""
        return sum(ring.arrived(launch) for ring, _ in self._incoming)

    # ---- memory ---------------------------------------------------------------------------------

    def payload(self, shape: Any, dtype: Any) -> np.ndarray:
        """An uninitialised array, in shared memory if it is worth that; see CoreState.payload."""
        dtype = np.dtype(dtype)
        shape = shape if isinstance(shape, tuple) else (shape,)
        nbytes = dtype.itemsize * prod(shape)
        block = self._take(nbytes) if nbytes > INLINE and self.net.near else None
        if block is None:
            return np.empty(shape, dtype)
        return block.view(dtype).reshape(shape)

    def _take(self, nbytes: int) -> np.ndarray | None:
        if self._table is None and not self._make_table():
            return None
        self._let_go()
        return self._heap.take(nbytes)

    def _let_go(self) -> None:
        """Forget payloads that their receivers don't need any more."""
        table = self._table
        if table is not None:
            done = [byte for byte in self._kept if not table[byte]]
            for byte in done:
                del self._kept[byte]
            self._bytes += done

    def _places(self, payload: Any) -> tuple[tuple[Place, ...] | None, Any]:
        """Where the arrays of a payload lie in shared memory, copied there if need be.

        Returns:
            (places, what must be kept); (None, None) if there is no room.
        """
        found, kept = [], []
        for array in parts(payload) or ():
            place = self._place(array) if array.flags.c_contiguous else None
            if place is None:
                block = self._take(array.nbytes)
                if block is None:
                    return None, None
                block.view(array.dtype).reshape(array.shape)[...] = array
                array, place = block, self._place(block)
            assert place is not None
            found.append(place)
            kept.append(array)
        return tuple(found), kept

    def _place(self, array: np.ndarray) -> Place | None:
        own = self._heap.segments()
        if len(own) != self._known_segments:
            self._make_index(own)
        address = array.ctypes.data
        at = bisect.bisect_right(self._index, address, key=lambda entry: entry[0]) - 1
        if at >= 0:
            start, size, owner, segment = self._index[at]
            if address + array.nbytes <= start + size:
                return Place(owner, segment, address - start)
        return None

    def _make_index(self, own: list[tuple[int, int]]) -> None:
        entries = [(start, size, self.net.me, n) for n, (start, size) in enumerate(own)]
        self._known_segments = len(own)  # before looking: what is mapped meanwhile sets it to -1
        for (owner, n), stack in list(self._mapped.items()):
            entries.append((stack.memory.ctypes.data, stack.capacity, owner, n))
        self._index = sorted(entries)

    def _handle(self, key: tuple[int, int]) -> StackHandle:
        owner, segment = key
        return self._heap.handle(segment) if owner == self.net.me else self._handles[key]

    # ---- sending --------------------------------------------------------------------------------

    def send(self, m: Message) -> None:
        """On its way; never waits."""
        self.sent += 1
        process = self.net.process_of[m.target]
        if process not in self.net.near or not self._by_ring(process, m):
            self.net.actors[process].deliver.remote(self.launch, m)

    def _by_ring(self, process: int, m: Message) -> bool:
        arrays = parts(m.payload)
        places, byte = None, 0
        out = self._out.get(process) or self._open(process, FIRST_RING)
        if out is None:
            return False
        if arrays is not None and sum([a.nbytes for a in arrays]) > INLINE:
            places, kept = self._places(m.payload)
            if not self._bytes:
                self._let_go()
            if places is None or not self._bytes:
                return False
            self._announce(process, out, {(p.owner, p.segment) for p in places})
            byte = self._bytes.pop()
            self._kept[byte] = kept
            assert self._table is not None
            self._table[byte] = 1
        while not out.encoder.write(m, self.launch, places, byte):
            grown = self._open(process, 4 * out.size) if out.size < LARGEST_RING else None
            if grown is None:
                if places is not None:
                    del self._kept[byte]
                    self._bytes.append(byte)
                return False
            out = grown
        if out.ring.reader_sleeps():
            self._ringer.ring(self.net.bell(process))
        return True

    def _open(self, process: int, size: int) -> _Outgoing | None:
        """A new ring to a process; what is in an old one is still read."""
        memory = self._take(size)
        if memory is None:
            return None
        memory[:HEADER] = 0
        ring, place = Ring(memory), self._place(memory)
        assert place is not None
        old = self._out.get(process)
        if old is not None:
            self._retired.append(old.ring)
        out = self._out[process] = _Outgoing(
            ring,
            Encoder(lambda record, counts: ring.put(record, self.launch, counts)),
            size,
            old.known if old else set(),
        )
        self._announce(
            process,
            out,
            {(self.net.me, 0), (self.net.me, place.segment)},
            (place.segment, place.offset, size),
        )
        return out

    def _make_table(self) -> bool:
        """The bytes that receivers clear are at the beginning of the first segment."""
        table = self._heap.take(KEPT)
        if table is None:
            return False
        place = self._place(table)
        assert place == Place(self.net.me, 0, 0)
        table[:] = 0
        self._table = memoryview(table)  # type: ignore[arg-type]
        return True

    def _announce(
        self,
        process: int,
        out: _Outgoing,
        segments: set[tuple[int, int]],
        ring: tuple[int, int, int] | None = None,
    ) -> None:
        unknown = segments - out.known
        if unknown or ring:
            out.known |= unknown
            handles = {key: self._handle(key) for key in unknown if key[0] != process}
            attach = Attach(self.net.token, self.net.me, handles, ring)
            self.net.actors[process].attach.remote(attach)

    # ---- receiving ------------------------------------------------------------------------------

    def poll(self) -> list[Message | None]:
        """What has arrived of this launch; None in it if the launch is given up."""
        found: list[Message | None] = []
        if self._early:
            found += [m for n, m in self._early if n == self.launch]
            self._early = [(n, m) for n, m in self._early if n != self.launch]
        while not self._inbox.empty():
            item = self._inbox.get()
            if item[0] == self.launch:
                found.append(item[1])
            elif item[0] > self.launch:
                self._early.append(item)
        for ring, decoder in self._incoming:
            while (record := ring.peek()) is not None:
                done, message = decoder.read(record, self.launch)
                if not done:
                    break  # its payload lies in memory that an Attach on its way will tell of
                ring.pop(record)
                if message is not None:
                    found.append(message)
        return found

    def wait(self, parked: Callable[[], None]) -> list[Message | None]:
        """What `poll` finds, as soon as it finds something.

        Args:
            parked: called before this process falls asleep.
        """
        for _ in range(LOOKS):
            found = self.poll()
            if found:
                return found
            os.sched_yield()
        self._let_go()
        parked()
        try:
            while True:
                self._asleep(1)
                found = self.poll()
                if found:
                    return found
                self._bell.wait()
        finally:
            self._asleep(0)

    def _asleep(self, value: int) -> None:
        fence = None
        for ring, _ in self._incoming:
            ring.words[ASLEEP] = value
            fence = ring.fence
        if value and fence is not None:
            fence()

    def attach(self, attach: Attach) -> None:
        """Map shared memory of another process; from the one thread that takes actor calls.

        Raises:
            LaunchError: it is gone, and its process with it.
        """
        if attach.token != self.net.token:
            return  # from a process that is gone
        for key, handle in attach.segments.items():
            if key not in self._mapped:
                self._handles[key] = handle
                self._mapped[key] = map_writable(handle)
                self._known_segments = -1  # the index is stale
        if attach.ring is not None:
            segment, start, size = attach.ring
            memory = self._mapped[attach.sender, segment].memory[start : start + size]
            ring = Ring.reading(memory)
            decoder = Decoder(lambda places, byte: self._claim(attach.sender, places, byte))
            self._incoming = (*self._incoming, (ring, decoder))

    def _claim(
        self, sender: int, places: list[tuple[Place, int]], byte: int
    ) -> list[np.ndarray] | None:
        memories = [self._memory(place) for place, _ in places]
        if any(memory is None for memory in memories):
            return None
        table = memoryview(self._mapped[sender, 0].memory)  # type: ignore[arg-type]
        lease = _Lease(self, table, byte)
        return [
            np.asarray(_Leased(memory, place.offset, nbytes, lease))
            for memory, (place, nbytes) in zip(memories, places)
        ]

    def _memory(self, place: Place) -> Any:
        if place.owner == self.net.me:
            return self._heap.memory(place.segment)
        mapped = self._mapped.get((place.owner, place.segment))
        return None if mapped is None else mapped.memory
