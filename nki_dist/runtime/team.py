"""Threads that carry out the lanes of a launch, beside the one that launches.

NumPy and BLAS let go of Python while they work on large arrays, so threads work at the same time.
They wait between launches, and end with whom they work for; a child process that was forked has
none, and makes its own.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from nki_dist.linking import blas

Work = Callable[[], Any]


class _Job:
    """What several threads do at the same time."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = works
        self.begun = False  # for the first worker alone
        self.done = threading.Event()
        self._left = len(works)
        self._lock = threading.Lock()

    def ended(self) -> None:
        """One of the works is done."""
        with self._lock:
            self._left -= 1
            if not self._left:
                self.done.set()


class Team:
    """The threads of one process's cores."""

    def __init__(self) -> None:
        self._queues: list[queue.SimpleQueue[Any]] = []
        self._home = os.getpid()

    def run(self, works: Sequence[Work], stop: Work) -> None:
        """Do all of these at the same time, the first one in this thread; none may raise.

        Args:
            stop: has all of them end soon. When this thread is interrupted, it is called, and what
                this thread has begun goes on where it was.

        Raises:
            BaseException: what interrupted this thread, when all have ended.
        """
        self._enlist(len(works) - 1)
        job, interrupt = _Job(works[1:]), None
        while True:
            try:
                self._queues[0].put(job)  # once is enough: the others get theirs from there
                works[0]()
                job.done.wait()
                break
            except BaseException as error:  # as by Ctrl-C, anywhere
                interrupt = interrupt or error
                stop()
        if interrupt is not None:
            raise interrupt

    def _enlist(self, count: int) -> None:
        if self._home != os.getpid():
            self._queues, self._home = [], os.getpid()
        while len(self._queues) < count:
            mine: queue.SimpleQueue[Any] = queue.SimpleQueue()
            name = f"nki lane {len(self._queues) + 1}"
            # It knows the queues, not this object, which would never be dropped.
            args = mine, self._queues
            threading.Thread(target=_serve, args=args, name=name, daemon=True).start()
            weakref.finalize(self, mine.put, None).atexit = False
            self._queues.append(mine)

    def close(self) -> None:
        """Let all threads end."""
        if self._home == os.getpid():
            for of in self._queues:
                of.put(None)
        self._queues = []


def _serve(mine: queue.SimpleQueue[Any], queues: Sequence[queue.SimpleQueue[Any]]) -> None:
    blas.limit().here()
    while (given := mine.get()) is not None:
        if isinstance(given, _Job):
            if given.begun:
                continue
            given.begun = True
            for other, work in zip(queues[1:], given.works[1:]):
                other.put((given, work))
            given = given, given.works[0]
        job, work = given
        work()
        job.ended()
        del given, job, work
