"""A Ray actor that is one NeuronCore, or several of them packed into a process.

Threads and what they may touch: `run` and `serve` (one thread) own the cores, their scheduler and
memories, and the `Links` to other processes; `deliver` (one thread) counts what arrives, puts it
into the inbox, a thread-safe queue, and rings the doorbell that the cores' thread sleeps at;
`attach` maps stacks of other processes, and it and `cancel` ring too; `status` only reads the
counts and one attribute that the cores' thread replaces as a whole; `dismiss` hangs up the mailbox
of `serve`. A message is counted before it is put into the inbox or can be read from a ring, so
whoever sees a core parked with as many messages taken as arrived knows that nothing is on its way
through this process.

Ray hears (`enable_task_events`) of the calls that carry out launches only: of others there is one
for each message to another node.

Messages of a launch may arrive before this actor has been told to start it (its peers started
first) or after it failed; both carry the launch's number and are kept or dropped accordingly.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
import ray

from nki_dist.compiler.decode import decode
from nki_dist.compiler.widen import widened
from nki_dist.core_actor.doorbell import Doorbell
from nki_dist.core_actor.folder import Folder
from nki_dist.core_actor.links import PATIENCE, Attach, Links, Net
from nki_dist.core_actor.mailbox import Mailbox
from nki_dist.core_actor.members import introduction
from nki_dist.core_actor.node_memory import NodeMemory
from nki_dist.core_actor.orders import Answer, Order, Status, Unmap
from nki_dist.core_actor.title import Title
from nki_dist.errors import NkiError
from nki_dist.hbm.actor_repr import ActorRepr
from nki_dist.hbm.arena import ArenaHandle, MappedArena, map_arena
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Program
from nki_dist.runtime.executor import Stopped
from nki_dist.runtime.group import CoreGroup, CoreReport, StackView
from nki_dist.runtime.messages import Message
from nki_dist.runtime.scheduler import Scheduler

BETWEEN: Final = "between launches"  # channel of processes that meet there
CORES: Final = "cores"  # name of the thread that runs them, which `ray stack` shows


class Cancelled(Exception):
    """The launch was given up because another core failed."""


# Ray's stubs don't know concurrency_groups.
@ray.remote(num_cpus=0, concurrency_groups={"run": 1, "mail": 1, "control": 1})  # type: ignore[call-overload]
class NeuronCore:
    """The actor. See the module's docstring for the threading rules."""

    def __init__(self, pickled: bytes = b"", world: str = "") -> None:
        """Of the cores, which are pickled: a node without this package, or with another version of
        it, couldn't unpickle them before Ray has the class, and its process would crash instead of
        saying so."""
        slots = pickle.loads(pickled) if pickled else ()
        self._group = CoreGroup(slots)
        self._title = Title(slots, world)
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._folder: Folder | None = None
        self._mailbox: Mailbox | None = None
        self._dismissed: set[str] = set()
        self._links: Links | None = None
        self._arrived: Counter[int] = Counter()
        self._status = Status()
        self._progress = (0, 0)
        self._programs: dict[Any, tuple[list[Program], dict[tuple[str, int], int]]] = {}
        self._arena: MappedArena | None = None
        self._regions: dict[int, dict[int, np.ndarray]] = {s.rank: {} for s in slots}

    __repr__ = ActorRepr(lambda self: f"NeuronCore({self._title.who})")

    # ---- control and mail ---------------------------------------------------------------------

    @ray.method(concurrency_group="control", enable_task_events=False)
    def become(self, slots: Sequence[CoreSlot], world: str = "") -> int:
        """Simulate these cores, before it has ever been connected; returns its process id."""
        self._group = CoreGroup(slots)
        self._title = Title(slots, world)
        self._regions = {s.rank: {} for s in slots}
        return os.getpid()

    @ray.method(concurrency_group="control", enable_task_events=False)
    def who(self, launcher: tuple[str, ...]) -> dict[str, Any]:
        """Who it is, for `Member.of`; told the place of the launcher."""
        return introduction(launcher)

    @ray.method(concurrency_group="control", enable_task_events=False)
    def connect(self, net: Net) -> bool:
        """Tell the actor of all processes of the world; whether it is reached in their folder.

        An actor of another user isn't, nor one whose folders are others; it then sends and is sent
        everything by actor calls.
        """
        self._group.threads, self._group.without = net.threads, net.without
        if self._links is not None:
            self._links.close()
        try:
            self._enter(Folder.inside(*net.folder), net)
        except OSError:
            self._enter(Folder.alone(), replace(net, near=frozenset()))
            return False
        return True

    def _enter(self, folder: Folder, net: Net) -> None:
        if self._folder is not None:
            self._folder.close()
        self._folder = folder
        self._links = self._linked(folder, net)

    def _linked(self, folder: Folder, net: Net) -> Links:
        memory, every = None, len(set(net.process_of.values()))
        if net.near:
            with suppress(OSError):  # then nobody sends here but by actor calls
                memory = NodeMemory.joined(folder, net.memory, every)
        return Links(net, Doorbell(folder, net.doorbell(net.me), PATIENCE), self._inbox, memory)

    @ray.method(concurrency_group="control", enable_task_events=False)
    def status(self) -> Status:
        status, links = self._status, self._links
        progress = self._progress if status.state == "done" else self._group.progress()
        arrived = self._arrived[status.launch]
        if links is not None:
            arrived += links.arrived(status.launch)
        running = self._group.running() if status.state == "running" else ()
        return replace(status, arrived=arrived, progress=progress, running=running)

    @ray.method(concurrency_group="control", enable_task_events=False)
    def cancel(self, launch: int) -> None:
        if self._status.launch == launch:
            self._group.stop()
        self._put((launch, None))

    @ray.method(concurrency_group="control", enable_task_events=False)
    def dismiss(self, name: str) -> None:
        """End the `serve` of that name, begun or not, which word by mailbox didn't reach."""
        self._dismissed.add(name)  # before the look: `serve` looks the other way round
        mailbox = self._mailbox
        if mailbox is not None and mailbox.name == name:
            mailbox.hang_up()

    @ray.method(concurrency_group="mail", enable_task_events=False)
    def deliver(self, launch: int, message: Message) -> None:
        self._arrived[launch] += 1
        self._put((launch, message))

    @ray.method(concurrency_group="mail", enable_task_events=False)
    def attach(self, attach: Attach) -> None:
        """Stacks of others that records to here need."""
        links = self._links
        if links is not None:
            links.attach(attach)
            links.ring()

    def _put(self, item: Any) -> None:
        links = self._links
        self._inbox.put(item)
        if links is not None:
            links.ring()

    # ---- the run thread ------------------------------------------------------------------------

    @ray.method(concurrency_group="run", enable_task_events=False)
    def release(self, token: str | None) -> None:
        """Let go of the stacks, so that the store has room for larger ones.

        Args:
            token: also of what messages lay in, and of stacks that others read; then all processes
                of the world do so, and this names them from now on. An Attach that still comes
                belongs to the old name.
        """
        self._arena = None
        self._group.forget()
        links = self._links
        if token is not None and links is not None:
            links.close()
            net, folder = replace(links.net, token=token), self._folder
            assert folder is not None
            self._links = self._linked(folder, net)
        elif links is not None:
            links.begin(-1)
        del links
        gc.collect()  # linked code refers to itself, and through its views holds the stacks

    @ray.method(concurrency_group="run")
    def run(self, order: Order) -> Answer:
        threading.current_thread().name = CORES
        return self._run(order)

    @ray.method(concurrency_group="run")
    def serve(self, order: Order, me: int, name: str, launcher: str) -> Answer:
        """`run`, and then what comes by mailbox to `name`, answered to `launcher` as (me, answer).

        Returns the last answer, when it doesn't go by mailbox, what comes is None, or it is
        dismissed.
        """
        assert self._folder is not None
        threading.current_thread().name = CORES
        mailbox = self._mailbox = Mailbox(self._folder, name)
        try:
            while True:
                answer = self._run_row(order)
                if not mailbox.send(launcher, (me, answer)):
                    # Who waits for the mailbox shouldn't have to wait until it looks at calls.
                    mailbox.send(launcher, (me, Answer(order.launch, by_call=name)))
                    return answer
                following = self._following(mailbox, name)
                if following is None:
                    return answer
                order = following
        finally:
            self._dismissed.discard(name)
            mailbox.close()

    def _following(self, mailbox: Mailbox, name: str) -> Order | None:
        """The next order that comes by mailbox; None when none comes any more."""
        while name not in self._dismissed:
            item = mailbox.receive(None)
            if not isinstance(item, Unmap):
                order: Order | None = item
                return order
            self._unmap(item)
        return None

    @ray.method(concurrency_group="run", enable_task_events=False)
    def unmap(self, item: Unmap) -> None:
        """Let go of regions, where that doesn't come by mailbox."""
        self._unmap(item)

    def _unmap(self, item: Unmap) -> None:
        for number in item.regions:
            self._group.forget_region(number)
            for regions in self._regions.values():
                regions.pop(number, None)

    def _run_row(self, order: Order) -> Answer:
        """Carry out an order, and what follows it."""
        last = answer = self._run(order)
        for following in order.then:
            if last.error is not None or last.cancelled or last.unknown_program:
                break
            last = self._run(following, follows=True)
            answer.then.append(last)
        return answer

    def _run(self, order: Order, follows: bool = False) -> Answer:
        answer = Answer(order.launch)
        try:
            self._map(order.arena)
            for number, handle in order.regions.items():
                for rank, memory in map_arena(handle).stacks.items():
                    if rank in self._regions:
                        self._regions[rank][number] = memory
        except NkiError as error:
            answer.error = error
            return answer
        if order.code is not None:
            self._load(order)
        if order.key not in self._programs:
            answer.unknown_program = True
            return answer
        self._status = Status(order.launch, "running")
        for old in [n for n in list(self._arrived) if n < order.launch]:
            del self._arrived[old]
        try:
            answer.reports = self._execute(order, answer, follows)
        except (Cancelled, Stopped):
            answer.cancelled = True
        except (
            NkiError,
            MemoryError,
            ArithmeticError,
            LookupError,
            ValueError,
            TypeError,
        ) as error:
            answer.error = error
        status = self._status
        finished = tuple(slot.core for slot in self._group.slots)
        self._progress = sum(r.done for r in answer.reports), len(answer.reports)
        self._status = Status(order.launch, "done", status.sent, status.taken, finished=finished)
        return answer

    def _load(self, order: Order) -> None:
        assert order.code is not None
        encoded, offsets = order.code
        for key in [k for k in self._programs if k not in self._group.linked]:
            del self._programs[key]  # what is no longer linked is sent again when needed
        self._programs[order.key] = (widened([decode(_fetched(e)) for e in encoded]), offsets)

    def _execute(self, order: Order, answer: Answer, follows: bool) -> list[CoreReport]:
        programs, offsets = self._programs[order.key]
        arena = self._arena
        assert arena is not None
        stacks = {
            rank: StackView(arena.stacks[rank], arena.generation, arena.common, regions)
            for rank, regions in self._regions.items()
        }
        links = self._links
        assert links is not None
        links.begin(order.launch, arena.object)
        early = self._meet(order.launch, links) if follows else []
        taken = 0

        def pump(scheduler: Scheduler) -> bool:
            nonlocal taken

            def parked() -> None:
                waits, done = tuple(scheduler.parked()), tuple(scheduler.finished())
                self._status = Status(
                    order.launch, "parked", links.sent, taken, waits=waits, finished=done
                )

            messages = [early.pop(0)] if early else links.wait(parked)
            self._status = Status(order.launch, "running", links.sent, taken)
            for message in messages:
                if message is None:
                    raise Cancelled
                taken += 1
                scheduler.deliver(message)
            return True

        def emit(core: int, prefix: str, array: np.ndarray) -> None:
            answer.printed.append((core, prefix, array))

        try:
            with self._title.launch(programs[0].kernel):
                return self._group.run(
                    order.key,
                    programs,
                    offsets,
                    stacks,
                    emit,
                    links.send,
                    pump,
                    links.payloads.array,
                    places=order.places,
                )
        finally:
            links.end()
            answer.sent = links.sent
            payloads = links.payloads
            answer.message_memory, answer.lends_stacks = payloads.nbytes, payloads.lends_stacks
            self._status = Status(order.launch, "running", links.sent, taken)

    def _meet(self, launch: int, links: Links) -> list[Message]:
        """Wait until all other processes have come to a launch; what else they have sent."""
        net, first = links.net, dict[int, int]()
        for core, process in sorted(net.process_of.items()):
            first.setdefault(process, core)
        me = first.pop(net.me)
        for core in first.values():
            links.send(Message(me, core, BETWEEN, 0, None, {"op": BETWEEN}, None))
        missing, others = set(first.values()), []

        def parked() -> None:
            self._status = Status(launch, "parked", links.sent)

        while missing:
            for message in links.wait(parked):
                if message is None:
                    raise Cancelled
                if message.channel == BETWEEN:
                    missing.discard(message.source)
                else:
                    others.append(message)
        return others

    def _map(self, arena: ArenaHandle | None) -> None:
        if arena is None or (self._arena and self._arena.generation == arena.generation):
            return
        self._arena = None
        self._group.forget()  # what was linked for the old place would keep it in memory
        self._arena = map_arena(arena)


def _fetched(code: bytes | list[Any]) -> bytes:
    """An encoded program that was sent as such, or as a reference to a plasma object."""
    return ray.get(code[0]) if isinstance(code, list) else code
