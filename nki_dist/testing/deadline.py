"""Giving up on a kernel whose tracing never ends.

A launch has the world's time-out; a kernel is traced before, as Python in this thread, and may loop
for ever. A watcher thread raises an exception in the waiting thread when the time is over.

Why it can't leave one behind: raising and taking back happen under one lock. After `over` is set
nothing is raised any more, and what was raised but not delivered is withdrawn under the lock; what
was delivered meanwhile is caught by the outer `try`. It is raised again every second, as kernels
may catch everything. Not ended: a call into C that never returns.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nki_dist.tricks import uses

AGAIN: Final = 1.0  # seconds


class _TimeIsOver(BaseException):
    """Not an Exception, so that `except Exception` in a kernel lets it pass."""


class TimeOver(Exception):
    """What was guarded took too long."""


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise TimeOver in the block when it takes longer; None for no limit."""
    if seconds is None or not uses("deadlines"):
        yield
        return
    thread = ctypes.c_ulong(threading.get_ident())
    lock = threading.Lock()
    over, raised = threading.Event(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            with lock:
                if not over.is_set():
                    raised.set()
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        thread, ctypes.py_object(_TimeIsOver)
                    )
            wait = AGAIN

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            with lock:
                over.set()
                if raised.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, None)
    except _TimeIsOver as ended:
        over.set()
        told = TimeOver(f"not done after {seconds:g} s").with_traceback(ended.__traceback__)
        raise told from None
    finally:
        watcher.join()
