"""Threads that carry out the lanes of a launch, beside the one that launches.

NumPy and BLAS let go of Python while they work on large arrays, so threads work at the same time.
They wait between launches; a child process that was forked has none, and makes its own.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

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
            threading.Thread(target=self._serve, args=(mine,), name=name, daemon=True).start()
            self._queues.append(mine)

    def _serve(self, mine: queue.SimpleQueue[Any]) -> None:
        while (given := mine.get()) is not None:
            if isinstance(given, _Job):
                if given.begun:
                    continue
                given.begun = True
                for other, work in zip(self._queues[1:], given.works[1:]):
                    other.put((given, work))
                given = given, given.works[0]
            job, work = given
            work()
            job.ended()
            del given, job, work

    def close(self) -> None:
        """Let all threads end."""
        if self._home == os.getpid():
            for of in self._queues:
                of.put(None)
        self._queues = []
