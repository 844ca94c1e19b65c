"""A program for `interrupts`: one phase of launches' lives, interrupted at some points.

`python -m tests.faults.interrupted DESCRIPTOR HOST PHASE LENGTH PLACES POINT...`; a point is
NUMBER:MODE:FRACTION. MODE is "places", where KeyboardInterrupt is raised at that fraction of the
places in the package's code that the phase comes to, the same one each time; "beneath", the same
with the code that the package calls; or "process" or "group", where the supervisor sends SIGINT at
that fraction of the phase's seconds. LENGTH and PLACES are those of phases that a process has only
once, else 0; without points, only they are found out, first the one and then the other. After each
point launches are tried in the same world and in a new one, and every step is a line for the
supervisor.
"""

from __future__ import annotations

import importlib.util
import inspect
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tests.faults.phases import PHASES, Phase
from tests.faults.supervised import Voice

_SPEC = importlib.util.find_spec("nki_dist")
assert _SPEC is not None and _SPEC.origin is not None
PACKAGE = str(Path(_SPEC.origin).parent)
TESTS = str(Path(__file__).parent)
LATE = 1.1  # of a phase's length: until then points by time are chosen
UNHEARD = 3.0  # seconds after which an interrupt that was sent has been swallowed


class Point(NamedTuple):
    """Where to interrupt."""

    number: int
    mode: str
    fraction: float

    @classmethod
    def of(cls, text: str) -> Point:
        number, mode, fraction = text.split(":")
        return cls(int(number), mode, float(fraction))

    def __str__(self) -> str:
        return f"{self.number}:{self.mode}:{self.fraction}"


class Places:
    """Counts where Python may interrupt the package's code in this thread, and does so at one.

    Each place counts once, when it is come to first: what loops goes round often, and what happens
    once in a launch is as likely to be wrong.

    Python looks for interrupts where a function begins and after a call of one in C. What it raises
    for the profiler appears there, too; only in a generator that goes on it would end the generator
    without its `finally`, so there nothing is raised.

    Args:
        at: where to interrupt, counted from 1; nowhere if None.
        beneath: also in what the package calls, as Ray and Python's own library.
    """

    def __init__(self, at: int | None = None, beneath: bool = False) -> None:
        self.at, self.count, self.where = at, 0, ""
        self._skipped = TESTS if beneath else ""
        self._known: set[object] = set()

    def __enter__(self) -> Places:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or not self._counts(code.co_filename):
            return
        if event == "call" and code.co_flags & inspect.CO_GENERATOR:
            return
        place = code, frame.f_lineno, event
        if place in self._known:
            return
        self._known.add(place)
        self.count += 1
        if self.count == self.at:
            self.where = where(frame)
            raise KeyboardInterrupt

    def _counts(self, name: str) -> bool:
        if self._skipped:
            return not name.startswith(self._skipped)
        return name.startswith(PACKAGE)


class Interrupted:
    """One phase in this process."""

    def __init__(self, voice: Voice, phase: Phase) -> None:
        self.voice, self.phase = voice, phase
        self.length, self.places, self.beneath = 0.0, 0, 0
        self.where = ""
        signal.signal(signal.SIGINT, self.ctrl_c)

    def ctrl_c(self, _: int, frame: FrameType | None) -> None:
        """What Python does for Ctrl-C, and note where."""
        self.where = where(frame)
        raise KeyboardInterrupt

    def measure(self) -> None:
        """How long the phase takes undisturbed: in seconds, or in places."""
        for number in range(1 if self.phase.alone else 3):
            self.phase.prepare(number)
            begun = time.monotonic()
            self.phase.act()
            self.length = time.monotonic() - begun

    def count(self, beneath: bool = False) -> int:
        """How many places it comes to."""
        self.phase.prepare(3)
        with Places(beneath=beneath) as counted:
            self.phase.act()
        return counted.count

    def point(self, point: Point) -> None:
        """Interrupt there, and look at what follows."""
        self.phase.prepare(point.number)
        error, seconds = self.interrupted(point)
        from tests.faults.worlds import verdict_of  # imports what may have been interrupted

        self.voice.say(
            step="interrupted",
            verdict=verdict_of(error),
            seconds=seconds,
            text=told(error),
            where=self.where,
        )
        steps = {"same": self.phase.again, "new": self.phase.anew}
        for step, act in steps.items():
            error, seconds = attempted(act)
            self.voice.say(step=step, verdict=verdict_of(error), seconds=seconds, text=told(error))
            if error is not None:
                self.phase.world = None

    def interrupted(self, point: Point) -> tuple[BaseException | None, float]:
        """What the phase came to, and how long after the interrupt."""
        delay = point.fraction * LATE * self.length
        begin = {"step": "begin", "number": point.number}
        begun = time.monotonic()
        if point.mode in ("places", "beneath"):
            self.voice.say(**begin, delay=None)
            beneath = point.mode == "beneath"
            every = self.beneath if beneath else self.places
            with Places(1 + int(point.fraction * every), beneath) as places:
                error, seconds = attempted(self.phase.act)
            self.where = places.where
            return error, seconds
        error = None
        try:
            self.voice.say(**begin, delay=delay)
            try:
                self.phase.act()
            except Exception as other:
                error = other
            while time.monotonic() < begun + delay + UNHEARD:
                time.sleep(0.05)
        except KeyboardInterrupt as interrupt:
            error = error or interrupt
        return error, max(0.0, time.monotonic() - begun - delay)


def attempted(act: Callable[[], None]) -> tuple[BaseException | None, float]:
    """What was raised, and the seconds."""
    begun = time.monotonic()
    try:
        act()
    except BaseException as error:
        return error, time.monotonic() - begun
    return None, time.monotonic() - begun


def told(error: BaseException | None) -> str:
    """The end of its traceback."""
    if error is None or isinstance(error, KeyboardInterrupt):
        return ""
    return "".join(traceback.format_exception(error))[-3000:]


def where(frame: FrameType | None) -> str:
    """The innermost line, and the innermost two of the package."""
    lines = [
        (f.f_code.co_filename, f"{n} {f.f_code.co_name}") for f, n in traceback.walk_stack(frame)
    ]
    names = [f"{Path(name).name}:{line}" for name, line in lines[:1]]
    names += [f"{Path(name).name}:{line}" for name, line in lines[1:] if PACKAGE in name][:2]
    return " < ".join(names)


def main(descriptor: str, host: str, name: str, length: str, places: str, *points: str) -> None:
    voice, phase = Voice(int(descriptor)), PHASES[name](host)
    here = Interrupted(voice, phase)
    if name == "end" and not points:
        phase.prepare(0)
    elif phase.alone and points:
        here.length, here.places = float(length), int(places)
    elif phase.alone and float(length):  # a process is good for one of them
        here.places = here.count()
    else:
        here.measure()
        if not phase.alone:
            here.places, here.beneath = here.count(), here.count(beneath=True)
    voice.say(step="measured", length=here.length, places=here.places)
    for text in points:
        point = Point.of(text)
        if name == "end":
            phase.prepare(point.number)
            voice.say(step="begin", number=point.number, delay=point.fraction * here.length)
            return
        here.point(point)
    if phase.world is not None and name != "end":
        phase.world.close()
    voice.say(step="over")


if __name__ == "__main__":
    main(*sys.argv[1:])
