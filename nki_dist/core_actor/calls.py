"""How a launcher's orders reach processes, and how their answers come back.

Processes of the launcher's machine serve by mailbox: one actor call, `serve`, stays open and takes
order after order as datagrams (`mailbox.py`). It ends with an answer that doesn't go by mailbox, of
which word is sent, when it is dismissed, or with its process, so whatever happens to one is noticed
as with any other actor call. All others, and everybody on systems without such sockets, get an
actor call for each order. What the mailbox doesn't take goes by an actor call, so nothing is lost
and nobody waits for what was.

Invariant: to each process with an open order belongs a future, which is done no later than Ray
knows of its end; an answer names its launch, so what is left from a launch that was given up isn't
taken for one of the next.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import ray

from nki_dist.core_actor.folder import Folder
from nki_dist.core_actor.mailbox import Mailbox
from nki_dist.core_actor.orders import Answer, Order, Unmap
from nki_dist.tricks import uses

GLANCE: Final = 0.01  # seconds for each way while some answer by mailbox and others don't
# Ray's names of these calls, which else are summed up for each actor, not for all.
RUN: Final = "NeuronCore: a launch"
SERVE: Final = "NeuronCore: launches by mailbox"


class Calls:
    """Of one world.

    Args:
        actors: of all processes; what is in it when an order is given counts.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors
        self._folder: Folder | None = None  # that the mailbox is in
        self._mailbox: Mailbox | None = None  # while somebody serves by it
        self._names = map(str, itertools.count())
        self._serving: dict[int, str] = {}  # where its orders go
        self._futures: dict[int, Any] = {}

    def order(self, n: int, order: Order, where: tuple[str, str] | None) -> None:
        """Have a process carry out an order.

        Args:
            where: the folder in which it can be reached by mailbox, if it can.
        """
        if n in self._serving:
            assert self._mailbox is not None
            if order.plain and self._mailbox.send(self._serving[n], order):
                return
            self._dismiss(n)
        actor = self._actors[n]
        if where is None or not uses("orders") or not self._opened(where):
            self._futures[n] = actor.run.options(name=RUN).remote(order)
            return
        assert self._mailbox is not None
        here = self._mailbox.name
        name = self._serving[n] = f"{here}-{next(self._names)}"
        self._futures[n] = actor.serve.options(name=SERVE).remote(order, n, name, here)

    def unmap(self, n: int, item: Unmap) -> None:
        """Have a process let go of regions, after the orders that it has."""
        if n in self._serving:
            assert self._mailbox is not None
            if self._mailbox.send(self._serving[n], item):
                return
            self._dismiss(n)
        if self._actors[n] is not None:
            self._actors[n].unmap.remote(item)

    def _opened(self, where: tuple[str, str]) -> bool:
        """Whether there is a mailbox, which is opened where there is none."""
        if self._mailbox is None:
            try:
                self._folder = Folder.inside(*where)
                self._mailbox = Mailbox(self._folder, uuid.uuid4().hex)
            except OSError:
                return False
        return True

    def answers(self, numbers: Collection[int], launch: int, seconds: float) -> Iterator[Any]:
        """(process, its answer to the order of that launch or Ray's error), as far as they come.

        Ends when all of these processes have answered, or after so many seconds.
        """
        missing = set(numbers)
        ends = time.monotonic() + seconds
        while missing:
            left = max(ends - time.monotonic(), 0.0)
            by_mailbox = missing & self._serving.keys()
            mixed = len(by_mailbox) < len(missing)
            if by_mailbox:
                for n, answer in self._by_mailbox(min(left, GLANCE) if mixed else left):
                    # One that asks for the program may be asked again, and answer, before we go on.
                    if answer.by_call:
                        if self._serving.get(n) == answer.by_call:
                            del self._serving[n]  # the call is as good as over
                    elif n in numbers and answer.launch == launch:
                        missing.discard(n)
                        yield n, answer
            late = time.monotonic() >= ends
            if missing and (mixed or late):
                for n, answer in self._called(missing, 0 if by_mailbox else left):
                    missing.discard(n)
                    yield n, answer
            if late:
                return

    def _by_mailbox(self, seconds: float) -> Iterator[tuple[int, Answer]]:
        """What comes by mailbox within so many seconds, and what has come besides."""
        assert self._mailbox is not None
        while (item := self._mailbox.receive(seconds)) is not None:
            yield item
            seconds = 0

    def _called(self, numbers: Collection[int], seconds: float) -> Iterator[tuple[int, Any]]:
        """Those whose actor calls are over."""
        by_future = {self._futures[n]: n for n in numbers}
        ready, _ = ray.wait(list(by_future), num_returns=len(by_future), timeout=seconds)
        for future in ready:
            n = by_future[future]
            self._serving.pop(n, None)
            try:
                yield n, ray.get(future)
            except ray.exceptions.RayError as error:
                yield n, error

    def settle(self, numbers: Collection[int], seconds: float) -> list[int]:
        """Wait until these processes do nothing; those that still do something then."""
        for n in numbers:
            self._dismiss(n)
        of = {n: self._futures[n] for n in numbers if n in self._futures}
        if not of:
            return []
        _, late = ray.wait(list(of.values()), num_returns=len(of), timeout=seconds)
        return [n for n, future in of.items() if future in late]

    def dismiss(self) -> None:
        """Nobody serves by mailbox any more; processes can be called for other things."""
        for n in list(self._serving):
            self._dismiss(n)

    def _dismiss(self, n: int) -> None:
        name = self._serving.pop(n, None)
        if name is None or (self._mailbox is not None and self._mailbox.send(name, None)):
            return
        if self._actors[n] is not None:  # it hasn't begun, or doesn't look
            self._actors[n].dismiss.remote(name)

    def forget(self, n: int) -> None:
        """A process was given up."""
        self._serving.pop(n, None)
        self._futures.pop(n, None)

    def clear(self) -> None:
        """There are no processes any more."""
        self._serving.clear()
        self._futures.clear()
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None
        if self._folder is not None:
            self._folder.close(whole=True)
            self._folder = None
