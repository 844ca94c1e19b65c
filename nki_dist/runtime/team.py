"""Threads that carry out the lanes of a launch, beside the one that launches.

NumPy and BLAS let go of Python while they work on large arrays, so threads work at the same time.
They wait between launches; a child process that was forked has none, and makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any


class _Worker:
    """One thread, which does what it is given and waits for more."""

    def __init__(self, number: int) -> None:
        self._given, self._done = threading.Lock(), threading.Lock()
        self._given.acquire()
        self._done.acquire()
        self._work: Callable[[], Any] | None = None
        thread = threading.Thread(target=self._run, name=f"nki lane {number}", daemon=True)
        thread.start()

    def _run(self) -> None:
        while True:
            self._given.acquire()
            work, self._work = self._work, None
            if work is None:
                return
            work()
            del work
            self._done.release()

    def give(self, work: Callable[[], Any]) -> None:
        """Begin something, which mustn't raise."""
        self._work = work
        self._given.release()

    def end(self) -> None:
        """Let the thread end."""
        self._given.release()

    def wait(self) -> None:
        """Wait until it is done."""
        self._done.acquire()


class Team:
    """The threads of one process's cores."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._home = os.getpid()

    def run(self, works: Sequence[Callable[[], Any]], stop: Callable[[], None]) -> None:
        """Do all of these at the same time, the first one in this thread; none may raise.

        Args:
            stop: has all of them end soon; called if this thread is interrupted.

        Raises:
            BaseException: what interrupted this thread, when all have ended.
        """
        if self._home != os.getpid():
            self._workers, self._home = [], os.getpid()
        while len(self._workers) < len(works) - 1:
            self._workers.append(_Worker(len(self._workers) + 1))
        waiting = []
        interrupt: BaseException | None = None
        try:
            for worker, work in zip(self._workers, works[1:]):
                waiting.append(worker)
                worker.give(work)
            works[0]()
        except BaseException as error:  # of this thread alone, as by Ctrl-C
            interrupt = error
            stop()
        while waiting:
            try:
                waiting[-1].wait()
                waiting.pop()
            except BaseException as error:
                interrupt = interrupt or error
                stop()
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """Let all threads end."""
        if self._home == os.getpid():
            for worker in self._workers:
                worker.end()
        self._workers = []
