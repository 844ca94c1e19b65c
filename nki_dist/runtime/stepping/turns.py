"""Lets several kernels of one process run in turn: a thread for each core, one of which runs.

A debugger, `breakpoint()` and exceptions need a Python stack for each core, so a core can't be a
coroutine of the scheduler; it is a thread that hands its turn back where it waits for a message.

Why no two run together: a core's thread runs from when the scheduler resumes its coroutine until
it waits or ends, and the scheduler's thread is blocked in between. Every hand-over is one release
of a semaphore that the other side has acquired or will, so none is lost. What both sides touch
(`_wait`, `_payload`, `_error`) changes only while its writer has the turn. So cores share memory
and NumPy's scratch without locks, and their order is the scheduler's, the same in every run.

The only core of a launch needs no thread: it runs where the kernel was called.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from nki_dist.runtime.deadlock import deadlock
from nki_dist.runtime.executor import Coroutine
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.scheduler import CoreRun

PATIENCE: Final = 2.0  # seconds that a cancelled kernel has to notice, which it does when it calls


class Ended(BaseException):
    """The launch has ended elsewhere: unwinds a kernel that waits, past its `except Exception`."""


class Alone:
    """The only core: its kernel runs in the thread of the scheduler.

    Args:
        body: the kernel's run.
        run: the core's place in the scheduler, once it has one.
    """

    def __init__(self, body: Callable[[], None], run: Callable[[], CoreRun]) -> None:
        self._body = body
        self._run = run

    def coroutine(self) -> Coroutine:
        self._body()
        return
        yield

    def wait(self, wait: Wait) -> Any:
        """Let others run until a message is there, and give its payload; called by the kernel."""
        found = self._run().take(wait)
        if isinstance(found, Wait):
            raise deadlock([found], ())
        return found.payload

    def check(self) -> None:
        """Nobody can end it but itself."""


class InThread:
    """One of several cores.

    Args:
        body: the kernel's run.
        name: of the thread, as debuggers list it.
    """

    def __init__(self, body: Callable[[], None], name: str) -> None:
        self._body = body
        self._name = name
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._wait: Wait | None = None
        self._payload: Any = None
        self._error: BaseException | None = None
        self._over = False
        self._cancelled = False

    def coroutine(self) -> Coroutine:
        context = contextvars.copy_context()
        # pdb traces the thread that it was started in; debuggers that know threads ask threading.
        self._debugger = sys.gettrace() if threading.gettrace() is None else None
        thread = threading.Thread(
            target=context.run, args=(self._main,), name=self._name, daemon=True
        )
        thread.start()
        try:
            while True:
                self._back.acquire()
                if self._over:
                    break
                assert self._wait is not None
                self._payload = yield self._wait
                self._go.release()
        finally:
            if not self._over:
                self._cancelled = True
                self._go.release()
            thread.join(PATIENCE)
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame

    def _main(self) -> None:
        if self._debugger is not None:
            sys.settrace(self._debugger)
        try:
            self._body()
        except Ended:
            pass  # nobody waits for it any more
        except BaseException as error:
            self._error = error
        finally:
            sys.settrace(None)
            self._over = True
            self._back.release()

    def wait(self, wait: Wait) -> Any:
        self._wait = wait
        self._back.release()
        self._go.acquire()
        return self._payload

    def check(self) -> None:
        """Raise Ended if the launch has ended meanwhile; called by the kernel."""
        if self._cancelled:
            raise Ended


Turns: TypeAlias = "Alone | InThread"  # how one core's kernel takes turns with the others
