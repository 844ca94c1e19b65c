"""The thread that imports, starts, joins and leaves Ray, which lives as long as the process.

Ray's servers end with the thread that started them (PR_SET_PDEATHSIG means a thread), so no thread
that may end before the process may start them. Where an exception comes into the middle of Ray's
start, as an interrupt does, half of Ray is connected, and the next start ends the process from C++;
an import that was interrupted can't be done again. So all of this is done here: who waits for it
may be interrupted, what is done never is. One after the other: whoever comes next waits until what
was begun is over.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from nki_dist.forks import Shared, once

_T = TypeVar("_T")


class RayThread(Shared):
    """The one of this process; a fork makes its own."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        super().__init__()

    def _forked(self) -> None:
        super()._forked()
        self._work, self._thread = queue.SimpleQueue(), None  # that of the parent is in no fork

    def do(self, what: Callable[[], _T], seconds: float | None = None) -> _T:
        """Its result, or its error; an interrupt ends the wait, and it goes on.

        Args:
            seconds: to wait for all that was begun before and for this.

        Raises:
            TimeoutError: it isn't over by then; it goes on.
        """
        if threading.current_thread() is self._thread:
            return what()
        future = self.begin(what)
        if (error := future.exception(seconds)) is not None:
            raise error
        return future.result()

    def begin(self, what: Callable[[], _T]) -> Future[_T]:
        """Have it done, without waiting for it.

        Once there is the thread, that takes no lock, so that finalizers may do it: they run in any
        thread, at any moment, also while it holds locks of Ray.
        """
        future: Future[_T] = Future()
        self._work.put((future, what))
        if not self.used:
            with self._lock:
                if self._thread is None:
                    # A daemon: it waits for work for ever.
                    self._thread = threading.Thread(target=self._run, name="nki-ray", daemon=True)
                    self._thread.start()
        return future

    @property
    def used(self) -> bool:
        """Whether it was ever given something."""
        return self._thread is not None

    def _run(self) -> None:
        while True:
            future, what = self._work.get()
            try:
                future.set_result(what())
            except BaseException as error:  # of whoever waits
                future.set_exception(error)
            del future, what  # and what they hold


@once
def ray_thread() -> RayThread:
    """That of this process."""
    return RayThread()
