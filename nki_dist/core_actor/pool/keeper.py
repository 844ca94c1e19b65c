"""The keeper: holds a local Ray with waiting actors, lends them, ends when nobody comes any more.

One thread. It sleeps until somebody writes or hangs up, or a TICK is over. A program that borrows
keeps its connection open; when that is closed, in whatever way the program ended, the actors it had
are killed and others started. Ray's processes are children that the kernel ends with this one, so
killing the keeper leaves nothing running.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import ray
import ray.exceptions

from nki_dist.core_actor import authentication
from nki_dist.core_actor.actor import NeuronCore
from nki_dist.core_actor.fingerprint import facts
from nki_dist.core_actor.pool import place
from nki_dist.core_actor.pool.place import NAMESPACE
from nki_dist.core_actor.private import in_private
from nki_dist.core_actor.processes import Process
from nki_dist.core_actor.ray_start import replacing
from nki_dist.core_actor.watchdog import Watchdog

TICK: Final = 0.5  # seconds
GIVEN_UP: Final = 5  # actors in a row that don't start


@dataclass
class _Waiting:
    """An actor that simulates nothing yet: the future of its number, and its process once known."""

    actor: Any
    future: Any
    process: Process | None = None


@dataclass
class _Loan:
    """A program's line, and what it has borrowed."""

    line: place.Line
    process: Process
    actors: dict[str, Any] = field(default_factory=dict)


class Keeper:
    """See the module's docstring.

    Args:
        actors: how many wait.
        idle: seconds without a program after which it ends.
        store: bytes of the object store that were asked for, or None.
    """

    def __init__(self, actors: int, idle: float, store: int | None) -> None:
        self._size, self._idle, self._store = actors, idle, store
        self._facts = facts()  # of now: files that change later aren't the ones that run
        options: dict[str, Any] = {} if store is None else {"object_store_memory": store}
        with replacing("ray-loopback", "ray-waits"):
            ray.init(
                address="local",
                namespace=NAMESPACE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
                **in_private(),
            )
        self._address = ray.get_runtime_context().gcs_address
        self._watchdog = Watchdog.here()
        self._since = self._last = time.time()
        self._started = self._failed = 0  # actors in all, and those in a row that didn't start
        self._waiting: dict[str, _Waiting] = {}
        self._loans: dict[Any, _Loan] = {}
        self._ends = ""

    def serve(self, where: Any) -> str:
        """Until it ends; says why."""
        self._refill()
        listening = place.listen(where)
        selector = selectors.DefaultSelector()
        selector.register(listening, selectors.EVENT_READ)
        try:
            while not self._ends:
                for key, _ in selector.select(TICK):
                    if key.fileobj is listening:
                        self._accept(listening, selector)
                    else:
                        self._hear(key.fileobj, selector)
                self._look(selector)
        finally:
            (where / place.SOCKET).unlink(missing_ok=True)  # nobody comes while Ray ends
            listening.close()
        return self._ends

    def _accept(self, listening: Any, selector: Any) -> None:
        try:
            connection, _ = listening.accept()
        except OSError as error:  # no more files, as too many hold lines
            print(f"a caller is lost: {error}", file=sys.stderr, flush=True)
            for idle in [c for c, loan in self._loans.items() if not loan.actors]:
                self._end(idle, selector)
            return
        connection.settimeout(place.ANSWER_SECONDS)
        line = place.Line(connection)
        if not line.same_user:
            line.close()
            return
        self._loans[connection] = _Loan(line, Process.of(line.pid))
        selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: Any, selector: Any) -> None:
        loan = self._loans.get(connection)
        if loan is None:  # it has just been ended
            return
        try:
            request = loan.line.take()
            if request is not None:
                loan.line.send(self._answer(loan, request))
                return
        except OSError:  # as if it had hung up
            request = None
        self._end(connection, selector)

    def _answer(self, loan: _Loan, request: dict[str, Any]) -> dict[str, Any]:
        want = request.get("want")
        if want == "actors":
            count = request.get("count")
            if type(count) is not int or count < 0:
                return {"error": "count must be a number, 0 or more"}
            return {"actors": self._lend(loan, count)}
        if want == "stop":
            users = self._users()
            if users and not request.get("force"):
                return {"programs": users}
            self._ends = "asked to"
            return {"stopping": os.getpid()}
        if want != "status":
            return {"error": "want must be actors, status or stop"}
        return self._status()

    def _status(self) -> dict[str, Any]:
        self._meet()
        return {
            "pid": os.getpid(),
            "address": self._address,
            "since": self._since,
            "waiting": sum(w.process is not None for w in self._waiting.values()),
            "starting": sum(w.process is None for w in self._waiting.values()),
            "lent": sum(len(loan.actors) for loan in self._loans.values()),
            "programs": self._users(),
            "idle_after": self._idle,
            "idle": 0.0 if self._users() else time.time() - self._last,
            "store": self._store,
            "token": os.environ.get(authentication.MODE, "").lower() == "token",
            "facts": self._facts,
        }

    def _users(self) -> list[int]:
        return sorted({loan.line.pid for loan in self._loans.values() if loan.actors})

    def _lend(self, loan: _Loan, count: int) -> list[str]:
        """Names of actors that are ready; fewer if there aren't so many."""
        self._meet()
        names = [n for n, w in self._waiting.items() if w.process is not None][:count]
        for name in names:
            loan.actors[name] = self._waiting.pop(name).actor
        self._last = time.time()
        return names

    # ---- actors ---------------------------------------------------------------------------------

    def _refill(self) -> None:
        """As many as wanted wait or start; those that are lent are others."""
        while len(self._waiting) < self._size:
            name = f"kept-{self._started}"
            self._started += 1
            actor = NeuronCore.options(name=name).remote()  # type: ignore[attr-defined]
            self._waiting[name] = _Waiting(actor, actor.become.remote(()))

    def _meet(self) -> None:
        """Which have come up, and which have died or been stopped."""
        for name, waiting in list(self._waiting.items()):
            if waiting.process is None:
                ready, _ = ray.wait([waiting.future], timeout=0)
                if not ready:
                    continue
                try:
                    waiting.process = Process.of(ray.get(waiting.future))
                except ray.exceptions.RayActorError as error:
                    print(f"{name} didn't start: {error}", file=sys.stderr, flush=True)
                    del self._waiting[name]
                    self._failed += 1
                else:
                    self._failed = 0
            elif not waiting.process.there() or waiting.process.stopped():
                print(f"{name} is gone or stopped; another is started", file=sys.stderr, flush=True)
                ray.kill(waiting.actor)
                waiting.process.kill()
                del self._waiting[name]

    def _end(self, connection: Any, selector: Any) -> None:
        """A program has hung up: what it had is killed."""
        loan = self._loans.pop(connection)
        selector.unregister(connection)
        loan.line.close()
        for actor in loan.actors.values():
            ray.kill(actor)
        if loan.actors:
            self._last = time.time()

    def _look(self, selector: Any) -> None:
        if lost := self._watchdog.lost():
            self._ends = f"its Ray is lost: {lost}"
            return
        if self._failed >= GIVEN_UP:
            self._ends = f"{self._failed} actors in a row didn't start"
            return
        for connection, loan in list(self._loans.items()):
            if not loan.process.there():  # a fork of it may hold the connection open
                self._end(connection, selector)
        self._meet()
        self._refill()
        if self._users() or any(w.process is None for w in self._waiting.values()):
            self._last = time.time()  # in use, or not ready for it
        elif time.time() - self._last > self._idle:
            self._ends = f"no program came for {self._idle:g} s"


def main(text: str) -> None:
    """Keep until it ends.

    Args:
        text: what Keeper takes, as JSON.
    """
    where = place.make()
    held = place.lock(where)
    if held is None:
        raise SystemExit("another keeper has the lock")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    keeper = Keeper(**json.loads(text))
    try:
        print(f"{time.ctime()}: ends, {keeper.serve(where)}", file=sys.stderr, flush=True)
    finally:
        ray.shutdown()
        os.close(held)
