"""How the cores of a process reach those of other processes: rings of the own node, or Ray.

A ring (`ring.py`) to each process of the node that this one sends to, made when it first does and
made anew, four times as large, when it is full. Rings, and payloads too large for them, lie in the
sender's shared memory (`payloads.py`); receivers read payloads where they are. Everything else goes
as an actor call: to other nodes, and what a ring or the memory has no room for. So a send never
waits. Receivers sort by sequence number, and needn't know which way a message came.

Everything here belongs to the thread that runs cores, with two exceptions: `arrived` reads
counters, and `attach` adds to what is mapped, also when no cores run, because messages to cores
that have finished count as arrived. Actor calls come through `inbox`, whose bell they ring.

Nobody sleeps through a message: before it sleeps, a process says so in all its rings and looks into
them once more, and who writes to a ring looks afterwards whether its reader sleeps (see `Ring`). It
wakes from time to time anyhow.
"""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist.core_actor.bell import Bell, Ringer
from nki_dist.core_actor.payloads import Payloads, Segment
from nki_dist.core_actor.records import INLINE, Decoder, Encoder, parts
from nki_dist.core_actor.ring import ASLEEP, HEADER, Ring
from nki_dist.hbm.plasma import Bytes, StackHandle
from nki_dist.runtime.messages import Message

FIRST_RING: Final = 128 << 10
LARGEST_RING: Final = 16 << 20
PATIENCE: Final = 0.25  # seconds of sleep without being woken
LOOKS: Final = 5  # before sleeping, with a chance for others to run in between


@dataclass(frozen=True)
class Net:
    """All processes of a world.

    Attributes:
        token: names this set of processes; a process that dies and is replaced makes another.
        folder: of the sockets of all processes on the same machine; see `Folder.inside`.
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
    folder: tuple[str, str] = ("", "")

    def bell(self, process: int) -> str:
        return f"{self.token}-{process}"


@dataclass(frozen=True)
class Attach:
    """What a process is told before it gets records that need it.

    Attributes:
        segments: memory of processes, by (owner, number).
        ring: of records from `sender`; (segment of the sender, start, length).
    """

    token: str
    sender: int
    segments: dict[Segment, StackHandle]
    ring: tuple[int, int, int] | None = None


@dataclass
class _Outgoing:
    """The way to one process: its ring, and which segments it knows."""

    ring: Ring
    encoder: Encoder
    size: int
    known: set[Segment]


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
        self._ringer = Ringer(bell.folder)
        self._payloads = Payloads(net.me)
        self._out: dict[int, _Outgoing] = {}
        self._retired: list[Ring] = []  # replaced by larger ones, but perhaps not read to the end
        self._incoming: tuple[tuple[Ring, Decoder], ...] = ()
        self._early: list[tuple[int, Message | None]] = []

    # ---- life -----------------------------------------------------------------------------------

    def begin(self, launch: int, stacks: tuple[Bytes, StackHandle] | None = None) -> None:
        """A launch begins here; all others are over everywhere. `stacks` as in Payloads.begin."""
        self.launch = launch
        self.sent = 0
        self._payloads.begin(launch, stacks)
        self._early = [(n, m) for n, m in self._early if n >= launch]

    def end(self) -> None:
        """The launch is over here: memory of others isn't ours any more."""
        self.launch = -1
        self._payloads.end()

    def close(self) -> None:
        """Let go of everything that is shared."""
        self._ringer.close()
        self._bell.close()
        self._out.clear()
        self._retired.clear()
        self._incoming = ()
        self._payloads.close()

    def ring(self) -> None:
        """There is something in the inbox; any thread may say so."""
        self._bell.ring()

    @property
    def memory(self) -> int:
        """Bytes of shared memory that are kept for what is sent."""
        return self._payloads.memory

    @property
    def lends_stacks(self) -> bool:
        """Whether other processes have the stacks of this one mapped."""
        return self._payloads.lends_stacks

    def arrived(self, launch: int) -> int:
        """Messages of a launch that are or were in rings to here; any thread may ask."""
        return sum(ring.arrived(launch) for ring, _ in self._incoming)

    # ---- sending --------------------------------------------------------------------------------

    def payload(self, shape: Any, dtype: Any) -> np.ndarray:
        """An uninitialised array to be sent; see Wires.payload."""
        return self._payloads.array(shape, dtype) if self.net.near else np.empty(shape, dtype)

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
            lent = self._payloads.lend(m.payload)
            if lent is None:
                return False
            places, byte = lent
            self._announce(process, out, {(p.owner, p.segment) for p in places})
        while not out.encoder.write(m, self.launch, places, byte):
            grown = self._open(process, 4 * out.size) if out.size < LARGEST_RING else None
            if grown is None:
                if places is not None:
                    self._payloads.take_back(byte)
                return False
            out = grown
        if out.ring.reader_sleeps():
            self._ringer.ring(self.net.bell(process))
        return True

    def _open(self, process: int, size: int) -> _Outgoing | None:
        """A new ring to a process; what is in an old one is still read."""
        memory = self._payloads.take(size)
        if memory is None:
            return None
        memory[:HEADER] = 0
        ring, place = Ring(memory), self._payloads.place(memory)
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

    def _announce(
        self,
        process: int,
        out: _Outgoing,
        segments: set[Segment],
        ring: tuple[int, int, int] | None = None,
    ) -> None:
        unknown = segments - out.known
        if unknown or ring:
            out.known |= unknown
            handles = self._payloads.handles(key for key in unknown if key[0] != process)
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
        self._payloads.collect()
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
        self._payloads.map(attach.segments)
        if attach.ring is not None:
            segment, start, size = attach.ring
            memory = self._payloads.mapped(attach.sender, segment)[start : start + size]
            ring = Ring.reading(memory)
            decoder = Decoder(partial(self._payloads.borrow, attach.sender))
            self._incoming = (*self._incoming, (ring, decoder))
