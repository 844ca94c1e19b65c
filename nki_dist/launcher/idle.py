"""Worlds on Ray that nobody uses for a while end their processes, and start again when needed.

A world keeps its processes warm for its next launch. In a program they end with it. A task of Ray
ends, but the process that ran it waits for others as long as Ray keeps it, with actors beside it
that Ray doesn't count. So there, and where NKI_DIST_IDLE says so, they end when they idle.

Who ends them has the world's lock, as a launch has, and doesn't wait for it: a world whose lock is
taken is in use, and idles from then on at the earliest. They are ended in Ray's own thread.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Final
from weakref import WeakKeyDictionary

from nki_dist.forks import Shared, once
from nki_dist.runtime.ray_thread import ray_thread

LOOKS: Final = 16  # in the time after which a world is idle
LEAST: Final = 0.05  # seconds between them
MOST: Final = 5.0


class Idlers(Shared):
    """Worlds of this process that are to end when they idle (`Hosted.rest`); a thread looks at them
    while there are any."""

    def __init__(self) -> None:
        self._seconds: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._thread: threading.Thread | None = None
        super().__init__()

    def _forked(self) -> None:
        super()._forked()
        self._seconds, self._thread = WeakKeyDictionary(), None  # the parent's, which ends them

    def watch(self, idler: Any, seconds: float) -> None:
        """Something has started that is to end when it wasn't used for so long."""
        with self._lock:
            self._seconds[idler] = seconds
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nki-idle", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                watched = dict(self._seconds)
                if not watched:
                    self._thread = None
                    return
            pause = min(max(min(watched.values()) / LOOKS, LEAST), MOST)
            for idler, seconds in watched.items():
                rested = ray_thread().begin(functools.partial(idler.rest, seconds))
                if rested.exception() is not None:
                    self.forget(idler)  # its next launch, or its close, meets the same
            del watched, idler, rested  # a world that is dropped is gone
            time.sleep(pause)

    def forget(self, idler: Any) -> None:
        """It has ended."""
        with self._lock:
            self._seconds.pop(idler, None)


@once
def idlers() -> Idlers:
    """Those of this process."""
    return Idlers()
