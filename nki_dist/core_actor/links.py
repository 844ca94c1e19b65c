"""Carries messages between processes of a world: in shared memory on one node, else by Ray.

A ring (`ring.py`) to each process of the node that this one sends to, made when it first does and
made anew, four times as large, when it is full. Rings, and payloads too large for them, lie in the
sender's part of the node's memory (`node_memory.py`); receivers read payloads where they are.
Everything else goes as an actor call: to other nodes, and what a ring or the memory has no room
for; a process has its own handle of another from then on. So a send never waits. Receivers sort by
sequence number, and needn't know which way a message came.

Everything here belongs to the thread that runs cores, with two exceptions: `arrived` reads counters
of all rings to here, known or not, because messages to cores that have finished count as arrived;
and `attach` maps stacks. Actor calls come through `inbox`, whose doorbell they ring.

Nobody sleeps through a message: before it sleeps, a process says so in all its rings and looks into
them once more, and who writes to a ring looks afterwards whether its reader sleeps (see `Ring`).
Who has made a ring rings in any case; a reader that finds one says in it at once whether it sleeps,
before it looks into it. It wakes from time to time anyhow.
"""

from __future__ import annotations

import os
import pickle
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist.core_actor.doorbell import TOKEN, Doorbell
from nki_dist.core_actor.folder import Sender
from nki_dist.core_actor.node_memory import NodeMemory
from nki_dist.core_actor.payloads import Payloads
from nki_dist.core_actor.records import COMMON, INLINE, Decoder, Encoder, parts
from nki_dist.core_actor.ring import (
    ASLEEP,
    BEFORE,
    HEADER,
    LAUNCH,
    RECORDS,
    SIZE,
    WORD,
    Fence,
    Ring,
)
from nki_dist.hbm.plasma import Bytes, StackHandle
from nki_dist.runtime.messages import Message

FIRST_RING: Final = 128 << 10
LARGEST_RING: Final = 16 << 20
PATIENCE: Final = 0.25  # seconds of sleep without being woken
LOOKS: Final = 5  # before sleeping, with a chance for others to run in between


class Handles:
    """Handles of all processes of a world, each made where and when it is first used.

    A handle that arrives somewhere costs Ray a subscription; most processes call nobody.
    """

    def __init__(self, pickled: Sequence[bytes]) -> None:
        self._pickled = pickled
        self._cache: dict[int, Any] = {}

    @classmethod
    def of(cls, actors: Sequence[Any]) -> Handles:
        return cls([pickle.dumps(actor) for actor in actors])

    def __reduce__(self) -> Any:
        return Handles, (self._pickled,)

    def __getitem__(self, n: int) -> Any:
        if n not in self._cache:
            self._cache[n] = pickle.loads(self._pickled[n])
        return self._cache[n]


@dataclass(frozen=True)
class Net:
    """All processes of a world.

    Attributes:
        token: names this set of processes; a process that dies and is replaced makes another.
        folder: of the sockets of all processes on the same machine; see `Folder.inside`.
        actors: of all processes.
        me: own number among them.
        process_of: number of the process that has a core.
        near: processes that are reached through rings, if they can enter the folder.
        threads: that carry out launches in the process.
        without: passes of linking that are left out.
    """

    token: str
    actors: Handles | Sequence[Any]
    me: int
    process_of: Mapping[int, int]
    near: frozenset[int]
    folder: tuple[str, str] = ("", "")
    threads: int = 1
    without: frozenset[str] = frozenset()

    def doorbell(self, process: int) -> str:
        return f"{self.token}-{process}"

    @property
    def memory(self) -> str:
        return f"{self.token}-memory"


@dataclass(frozen=True)
class Attach:
    """What a process is told before it gets records that need it.

    Attributes:
        stacks: of processes.
    """

    token: str
    stacks: dict[int, StackHandle]


@dataclass
class _Outgoing:
    """The way to one process: its ring, where that lies, and whose stacks the process knows."""

    ring: Ring
    encoder: Encoder
    size: int
    place: int
    announced: set[int]


class Links:
    """See the module's docstring.

    Args:
        net: all processes of the world.
        doorbell: of this process.
        inbox: (launch, message) from actor calls, (launch, None) if a launch is given up.
        memory: of the processes of this node; None if there are no others.

    Attributes:
        payloads: what is sent lies there.
    """

    def __init__(
        self,
        net: Net,
        doorbell: Doorbell,
        inbox: queue.SimpleQueue[Any],
        memory: NodeMemory | None = None,
    ) -> None:
        self.net = net
        self.sent = 0
        self._doorbell, self._inbox = doorbell, inbox
        self._doorbells = Sender(doorbell.folder)  # of others
        self._memory = memory
        self.payloads = Payloads(net.me, memory)
        self._out: dict[int, _Outgoing] = {}
        self._retired: list[Ring] = []  # replaced by larger ones, but perhaps not read to the end
        self._incoming: list[tuple[Ring, Decoder]] = []
        self._places = memoryview(b"")  # of the last rings to here
        self._seen = b""  # as they were when they were last looked at
        self._sleeps = 0
        self._fence = Fence()
        if memory is not None:
            self._places = memory.head(net.me)[1:]
            self._seen = bytes(self._places)
            memory.enter(net.me)
        self._early: list[tuple[int, Message | None]] = []

    # ---- life -----------------------------------------------------------------------------------

    def begin(self, launch: int, stacks: tuple[Bytes, StackHandle] | None = None) -> None:
        """A launch begins here; all others are over everywhere. `stacks` as in Payloads.begin."""
        self.sent = 0
        self.payloads.begin(launch, stacks)
        self._early = [(n, m) for n, m in self._early if n >= launch]

    def end(self) -> None:
        """The launch is over here: memory of others isn't ours any more."""
        self.payloads.end()

    def close(self) -> None:
        """Let go of everything that is shared."""
        self._doorbells.close()
        self._doorbell.close()
        self._out.clear()
        self._retired.clear()
        self._incoming.clear()
        self.payloads.close()
        if self._memory is not None:
            self._memory.close()
            self._memory, self._places, self._seen = None, memoryview(b""), b""

    def ring(self) -> None:
        """There is something in the inbox; any thread may say so."""
        self._doorbell.ring()

    def arrived(self, launch: int) -> int:
        """Messages of a launch that are or were in rings to here; any thread may ask."""
        memory, found = self._memory, 0
        if memory is None:
            return 0
        words = memory.words
        at = np.array(memory.head(self.net.me)[1:], np.int64) // WORD
        while (at := at[at > 0]).size:  # the last rings, those before them, and so on
            found += int(words[at + RECORDS][words[at + LAUNCH] == launch].sum())
            at = words[at + BEFORE] // WORD
        return found

    # ---- sending --------------------------------------------------------------------------------

    def send(self, m: Message) -> None:
        """On its way; never waits."""
        self.sent += 1
        process = self.net.process_of[m.target]
        out = self._out.get(process) or self._first(process)
        if out is None or not self._by_ring(process, out, m):
            self.net.actors[process].deliver.remote(self.payloads.launch, m)

    def _first(self, process: int) -> _Outgoing | None:
        """The first ring to a process, if it is one that has the memory."""
        if self._memory is None or process not in self.net.near:
            return None
        return self._open(process, FIRST_RING) if self._memory.there(process) else None

    def _by_ring(self, process: int, out: _Outgoing, m: Message) -> bool:
        arrays = parts(m.payload)
        places, byte = None, 0
        if arrays is not None and sum([a.nbytes for a in arrays]) > INLINE:
            lent = self.payloads.lend(m.payload)
            if lent is None:
                return False
            places, byte = lent
            self._announce(process, out, {p.owner for p in places})
        while not out.encoder.write(m, self.payloads.launch, places, byte):
            grown = self._open(process, 4 * out.size) if out.size < LARGEST_RING else None
            if grown is None:
                if places is not None:
                    self.payloads.take_back(byte)
                return False
            out = grown
        if out.ring.reader_sleeps():
            self._doorbells.send(self.net.doorbell(process), TOKEN)
        return True

    def _open(self, process: int, size: int) -> _Outgoing | None:
        """A new ring to a process; what is in an old one is still read."""
        block = self.payloads.take(size)
        if block is None:
            return None
        assert self._memory is not None
        place = self._memory.place(block)
        assert place is not None
        old = self._out.get(process)
        block[:HEADER] = 0
        ring = Ring(block)
        ring.words[SIZE] = size
        if old is not None:
            ring.words[BEFORE] = old.place
            self._retired.append(old.ring)
        self._fence()
        self._memory.head(process)[1 + self.net.me] = place
        self._doorbells.send(self.net.doorbell(process), TOKEN)
        encoder = Encoder(lambda record, counts: ring.put(record, self.payloads.launch, counts))
        announced = old.announced if old else {COMMON, process}
        out = self._out[process] = _Outgoing(ring, encoder, size, place, announced)
        return out

    def _announce(self, process: int, out: _Outgoing, owners: set[int]) -> None:
        unknown = owners - out.announced
        if unknown:
            out.announced |= unknown
            stacks = {owner: self.payloads.handle(owner) for owner in unknown}
            self.net.actors[process].attach.remote(Attach(self.net.token, stacks))

    # ---- receiving ------------------------------------------------------------------------------

    def poll(self) -> list[Message | None]:
        """What has arrived of this launch; None in it if the launch is given up."""
        launch, found = self.payloads.launch, list[Message | None]()
        if self._early:
            found += [m for n, m in self._early if n == launch]
            self._early = [(n, m) for n, m in self._early if n != launch]
        while not self._inbox.empty():
            item = self._inbox.get()
            if item[0] == launch:
                found.append(item[1])
            elif item[0] > launch:
                self._early.append(item)
        if bytes(self._places) != self._seen:
            self._find_rings()
        for ring, decoder in self._incoming:
            while (record := ring.peek()) is not None:
                done, message = decoder.read(record, launch)
                if not done:
                    break  # its payload lies in stacks that an Attach on its way will tell of
                ring.pop(record)
                if message is not None:
                    found.append(message)
        return found

    def _find_rings(self) -> None:
        """Know the rings that others have made, in the order in which they were written."""
        memory, seen = self._memory, memoryview(self._seen).cast("Q")
        assert memory is not None
        self._seen = bytes(self._places)
        self._fence()  # what is at a place was stored before the place
        for sender, place in enumerate(memoryview(self._seen).cast("Q")):
            found = []
            while place and place != seen[sender]:
                words = Ring(memory.bytes[place : place + HEADER]).words
                found.append(Ring.reading(memory.bytes[place : place + words[SIZE]]))
                place = words[BEFORE]
            for ring in reversed(found):
                ring.words[ASLEEP] = self._sleeps
                self._incoming.append((ring, Decoder(partial(self.payloads.borrow, sender))))
        self._fence()

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
        self.payloads.collect()
        parked()
        try:
            while True:
                self._asleep(1)
                found = self.poll()
                if found:
                    return found
                self._doorbell.wait()
        finally:
            self._asleep(0)

    def _asleep(self, value: int) -> None:
        self._sleeps = value
        fence = None
        for ring, _ in self._incoming:
            ring.words[ASLEEP] = value
            fence = ring.fence
        if value and fence is not None:
            fence()

    def attach(self, attach: Attach) -> None:
        """Map stacks of another process; from the one thread that takes actor calls.

        Raises:
            LaunchError: they are gone, and their process with them.
        """
        if attach.token == self.net.token:  # else from a process that is gone
            self.payloads.map(attach.stacks)
