"""Launches in a row: carried out in the order of the program, without the program waiting for each.

One thread carries them out, for which a program's end waits. What one raises is kept until the
program asks for a value or waits; of those that fail only because an earlier one did, nothing is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from nki_dist.errors import NkiError
from nki_dist.launcher.resident_launch import ResidentLaunch
from nki_dist.runtime.executor import Stopped

MOST: Final = 1024  # launches that wait; more wait in the program
TOGETHER: Final = 16  # launches that are carried out in one go; each has its own results
LOOK_EVERY: Final = 0.1  # seconds
LINGERS: Final = 0.1  # seconds that the thread waits for more, and a program's end for it
PATIENCE: Final = 10.0  # seconds that a launch has to stop after an interrupt


class Row:
    """See the module's docstring.

    Args:
        stop: ends what is under way, if anything is.
        together: carries out the first of several launches in one go, and says how many it has.

    Attributes:
        idle: nothing waits or is under way, and nobody has failed unseen.
    """

    def __init__(self, stop: Callable[[], None], together: Callable[[Sequence[Any]], int]) -> None:
        self._stop, self._together = stop, together
        self.forget()

    def forget(self) -> None:
        """Begin anew: in a fork, where what waits is the parent's."""
        self._given_up = 0
        self._waiting: deque[ResidentLaunch] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self.idle = True
        self._thread: threading.Thread | None = None
        self._errors: list[BaseException] = []

    def add(self, launch: ResidentLaunch) -> None:
        """Carry it out after those that were added before."""
        with self._changed:
            while len(self._waiting) >= MOST:
                self._changed.wait()
            self._waiting.append(launch)
            self.idle = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nki-row")
                self._thread.start()
            elif not self._busy:
                self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                if not self._waiting:
                    self.idle = not self._errors
                    self._changed.notify_all()
                    self._changed.wait(LINGERS)
                if self._waiting and _interrupted():
                    self._waiting.clear()
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                count = min(len(self._waiting), TOGETHER)
                launches = [self._waiting.popleft() for _ in range(count)]
                before = self._given_up
                self._busy = True
                self._changed.notify_all()
            self._carry_out(launches, before)
            del launches  # and with them tensors that nobody else has

    def _carry_out(self, launches: list[ResidentLaunch], before: int) -> None:
        """Carry out several together if that is possible, else the first; the others wait on."""
        try:
            done = self._together(launches) if len(launches) > 1 else 0
            if not done:
                done = 1
                launches[0]()
        except BaseException as error:  # whoever waits for it gets it
            launches[0].fail(error)
            self._errors.append(_named(error, launches[0]))
            done = 1
        with self._changed:
            if before == self._given_up:
                self._waiting.extendleft(reversed(launches[done:]))
                return
        for launch in launches[done:]:
            launch.fail(Stopped())

    def drain(self) -> None:
        """Return when all have ended; an interrupt ends them."""
        if self.idle or threading.current_thread() is self._thread:
            return
        try:
            with self._changed:
                while self._busy or self._waiting:
                    self._changed.wait()
        except BaseException as error:
            self.give_up(error)
            raise

    def give_up(self, error: BaseException) -> None:
        """Nobody wants them any more, after an interrupt."""
        with self._changed:
            self._given_up += 1
            given_up = list(self._waiting)
            self._waiting.clear()
            ends = time.monotonic() + PATIENCE
            while self._busy and time.monotonic() < ends:
                self._stop()  # again, as it may not have begun before
                self._changed.wait(LOOK_EVERY)
            self._errors.clear()  # which the interrupt has brought about
            self.idle = not self._busy
        for launch in given_up:
            launch.fail(error)

    def take_first(self) -> BaseException | None:
        """The first error that nobody has seen, if there is one; the others are forgotten."""
        with self._changed:
            first = self._errors[0] if self._errors else None
            self._errors.clear()
            self.idle = not (self._busy or self._waiting)
        return first

    def raise_first(self) -> None:
        """Raise the first error that nobody has seen, if there is one."""
        if not self.idle and (first := self.take_first()) is not None:
            raise first


def _interrupted() -> bool:
    """Whether the program is over, and by an interrupt."""
    last = getattr(sys, "last_type", None)
    return last is KeyboardInterrupt and not threading.main_thread().is_alive()


def _named(error: BaseException, launch: ResidentLaunch) -> BaseException:
    if isinstance(error, NkiError):
        error.message += f"\n  This is the launch of {launch.where}"
    return error
