"""Drives the coroutines of several cores from one thread.

A core is ready, parked on one Wait, or finished. Cores run in turn until they park; delivering the
message a core waits for makes it ready. Nothing ready, somebody parked, and nobody outside who
could still send: that is a deadlock, known at once. Order of execution never changes results: cores
meet only through messages, which are matched by source, channel and sequence number.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from nki_dist.isa.core import Core
from nki_dist.program import Program
from nki_dist.runtime.deadlock import SETTLES, deadlock, together
from nki_dist.runtime.executor import Coroutine, Stopped
from nki_dist.runtime.messages import Mailbox, Message, Wait, agree
from nki_dist.runtime.overdue import Position, overdue

What: TypeAlias = "dict[str, Any]"  # description of an operation


class Runner(Protocol):
    """What runs one core: an Executor, or in a debugged launch the kernel itself."""

    program: Program
    core: Core
    trips: list[int]
    ends: float

    @property
    def done(self) -> int: ...
    def run(self) -> Coroutine: ...
    def position(self) -> Position: ...


@dataclass
class CoreRun:
    """One core's run in a launch."""

    core: int
    executor: Runner
    coroutine: Coroutine
    mailbox: Mailbox = field(default_factory=Mailbox)
    waiting: Wait | None = None
    finished: bool = False
    # By (core, channel), how many messages, and the operation and line of the last one.
    sent: dict[tuple[int, str], tuple[int, What, str | None]] = field(default_factory=dict)
    taken: dict[tuple[int, str], int] = field(default_factory=dict)
    pending: Wait | None = None
    messages: int = 0
    message_bytes: int = 0

    def at_rest(self, wait: Wait) -> Wait:
        """What it waits for when nobody goes on, with a message that it would meet some time.

        Which of a group's messages it looks at first is the algorithm's.
        """
        if wait.met is None and together(wait):
            members = set(wait.what["group"])
            for (source, channel), queue in sorted(self.mailbox.items()):
                meant = channel == wait.channel and source // wait.lnc in members
                if meant and queue and not agree(queue[0], wait):
                    return wait._replace(met=queue[0]._replace(payload=None))
        return wait

    def take(self, wait: Wait) -> Message | Wait:
        """The message it waits for; else how it waits: for good if that is of another operation."""
        key = (wait.source, wait.channel)
        sequence = self.taken.get(key, 0)
        message = self.mailbox.take(wait, sequence)
        if message is None:
            return wait
        self.taken[key] = sequence + 1
        if agree(message, wait):
            return message
        return wait._replace(met=message._replace(payload=None))


class Scheduler:
    """Runs the cores of one process.

    Args:
        outside: called with a message for a core that isn't in this process.
        memory: makes arrays that messages carry; see Wires.payload.
        timeout: seconds after which the cores are given up; None for never.
        since: when these began, if that isn't now.
    """

    def __init__(
        self,
        outside: Callable[[Message], None] | None = None,
        memory: Callable[..., Any] | None = None,
        timeout: float | None = None,
        since: float | None = None,
    ) -> None:
        self.cores: dict[int, CoreRun] = {}
        self._ready: deque[CoreRun] = deque()
        self._current: CoreRun | None = None
        self._timeout = timeout
        self._ends = math.inf
        if timeout is not None:
            self._ends = timeout + (time.monotonic() if since is None else since)
        self._settled = math.inf  # when a disagreement is told, wherever cores are
        self._outside = outside
        self._memory = memory

    def add(self, executor: Runner) -> CoreRun:
        """Admit a core; its `send` and `receive` are connected here."""
        slot, wires, program = executor.core.slot, executor.core.wires, executor.program
        core, lnc = slot.core, slot.lnc
        run = CoreRun(core, executor, executor.run())
        executor.ends = self._ends
        lines: dict[Any, str | None] = {}

        def line(i: Any) -> str | None:
            found = lines.get(i.location)
            if found is None:
                found = lines[i.location] = program.where(i.location)
            return found

        def send(
            to: int, channel: str, payload: Any, what: What, i: Any, number: int | None = None
        ) -> None:
            key, where = (to, channel), line(i)
            before = run.sent.get(key)
            sequence = 0 if before is None else before[0]
            run.sent[key] = sequence + 1, what, where
            self._send(run, Message(core, to, channel, sequence, payload, what, where, number))

        def receive(
            source: int, channel: str, what: What, i: Any, number: int | None = None
        ) -> Wait:
            return Wait(core, source, channel, what, line(i), lnc, number)

        wires.send, wires.receive = send, receive
        if self._memory is not None:
            wires.payload = self._memory
        self.cores[core] = run
        self._ready.append(run)
        return run

    def _send(self, run: CoreRun, message: Message) -> None:
        run.messages += 1
        if message.payload is not None:
            run.message_bytes += message.payload.nbytes
        if message.target in self.cores:
            self.deliver(message)
        else:
            assert self._outside is not None, f"message for unknown core {message.target}"
            self._outside(message)

    def deliver(self, message: Message) -> None:
        """Hand over a message; a core that waits for it becomes ready."""
        run = self.cores[message.target]
        run.mailbox.put(message)
        wait = run.waiting
        if wait is None or wait.met is not None:
            return
        if wait.source == message.source and wait.channel == message.channel:
            run.waiting = None
            self._ready.append(run)
            run.pending = wait

    def step(self) -> bool:
        """Run one ready core until it parks or finishes; False if none is ready."""
        if not self._ready:
            return False
        self._current = run = self._ready.popleft()
        wait, run.pending = run.pending, None
        payload = None
        while True:
            if wait is not None:
                found = run.take(wait)
                if isinstance(found, Wait):
                    run.waiting = found
                    if found.met is not None:
                        self._settle()
                    return True
                if time.monotonic() > run.executor.ends:
                    raise Stopped
                payload = found.payload
            try:
                wait = run.coroutine.send(payload)
            except StopIteration:
                run.finished = True
                return True

    def run(self, pump: Callable[[Scheduler], bool] | None = None) -> None:
        """Run all cores to their end.

        Args:
            pump: waits for messages from outside and delivers them; False when there will be none.
                None: nobody is outside.

        Raises:
            DeadlockError: cores wait for messages that nobody will send, or the time is up.
            CollectiveMismatchError: cores are in different operations.
            Stopped: another thread ended it.
        """
        while self.rest():
            if pump is None or not pump(self):
                raise deadlock(self.at_rest(), self.finished())

    def rest(self) -> bool:
        """Run cores until none is ready; whether some wait then. Raises: as `run`."""
        try:
            while self.step():
                pass
        except Stopped:
            if time.monotonic() > self._settled:
                raise deadlock(self.parked(), self.finished()) from None
            self.check_time()
            raise
        return bool(self.parked())

    def _settle(self) -> None:
        """Two cores disagree: have the others come to rest, so that it is told who is different.

        Where everybody stands at rest depends on the program alone, not on who ran first.
        """
        if math.isinf(self._settled):
            self._settled = time.monotonic() + SETTLES
            for run in self.cores.values():
                run.executor.ends = min(run.executor.ends, self._settled)

    def check_time(self) -> None:
        """Nothing, or the error that the time is up.

        Raises:
            DeadlockError: it is.
        """
        if self._timeout is not None and time.monotonic() > self._ends:
            raise overdue(self._timeout, self.running(), self.parked(), len(self._ready)) from None

    def running(self) -> list[Position]:
        """Where the core is whose turn it is; any thread may ask."""
        run = self._current
        return [] if run is None else [run.executor.position()]

    def progress(self) -> tuple[int, int]:
        """Instructions done and cores finished; any thread may ask."""
        runs = list(self.cores.values())
        return sum(r.executor.done for r in runs), sum(r.finished for r in runs)

    def parked(self) -> list[Wait]:
        return [w for r in self.cores.values() if (w := r.waiting) is not None]

    def at_rest(self) -> list[Wait]:
        """The waits of all cores that wait, when nobody goes on any more."""
        return [r.at_rest(w) for r in self.cores.values() if (w := r.waiting) is not None]

    def finished(self) -> list[int]:
        return [r.core for r in self.cores.values() if r.finished]

    def close(self) -> None:
        """End every coroutine that is still waiting, and take back what `add` connected."""
        for run in self.cores.values():
            run.coroutine.close()
            run.executor.core.wires.disconnect()
