"""Interrupts at many points of launches' lives, and what the next launches give."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.interrupted import Point
from tests.faults.phases import PHASES
from tests.faults.supervised import Ending, Gone, Hang, Program

MODES = ("places", "process", "beneath", "group")
PREPARE = 90.0  # seconds
PROMISED = 40.0  # seconds in which a launch has come to something
END = 30.0  # seconds for a program's end
# How many points of 300 each phase gets.
SHARES = {
    "ray": {
        "import": 5,
        "world": 35,
        "compile": 35,
        "map": 45,
        "run": 35,
        "warm": 25,
        "close": 25,
        "start": 20,
        "end": 10,
    },
    "inprocess": {
        "import": 10,
        "world": 10,
        "compile": 15,
        "map": 10,
        "run": 5,
        "warm": 5,
        "close": 5,
        "end": 5,
    },
}
WORST = ("right", "typed", "untyped", "wrong", "hang", "abort")


@dataclass
class Outcome:
    """What came of one point."""

    host: str
    phase: str
    point: Point
    verdict: str = "right"
    seconds: float = 0.0
    where: str = ""
    details: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)

    def add(self, step: str, verdict: str, seconds: float, text: str = "") -> None:
        """Of several steps the worst counts."""
        if verdict == "interrupted":
            verdict = "right" if step == "interrupted" else "untyped"
        self.verdict = max(self.verdict, verdict, key=WORST.index)
        self.seconds = max(self.seconds, seconds)
        if verdict != "right":
            self.details.append(f"{step}: {verdict} after {seconds:.1f} s\n{text}")

    @property
    def bad(self) -> bool:
        return self.verdict not in ("right", "typed") or bool(self.leftovers)


def counts(host: str, count: int) -> dict[str, int]:
    """How many points each phase of a host gets, of so many over both hosts."""
    every = sum(sum(shares.values()) for shares in SHARES.values())
    return {phase: max(1, round(count * n / every)) for phase, n in SHARES[host].items()}


def points(seed: int, host: str, phase: str, count: int) -> list[Point]:
    """Each depends on the seed, host, phase and its number alone."""
    found = []
    for number in range(count):
        mode = MODES[number % len(MODES)]
        if mode == "beneath" and PHASES[phase].alone:
            mode = "places"
        if mode == "places" and phase == "end":
            mode = "process"  # a program's end isn't in our code
        fraction = random.Random(f"{seed}/{host}/{phase}/{number}").random()
        found.append(Point(number, mode, round(fraction, 4)))
    return found


def interrupts(host: str, phase: str, chosen: Sequence[Point]) -> Iterator[Outcome]:
    """Interrupt at these points, in as many programs as that takes."""
    module, left = "tests.faults.interrupted", list(chosen)
    length, places = 0.0, 0
    if PHASES[phase].alone:
        length, places = _measured(module, host, phase)
    while left:
        now = left[:1] if PHASES[phase].alone else left
        program = Program(module, host, phase, length, places, *now)
        done = yield from _outcomes(program, host, phase, now)
        left = left[max(done, 1) :]


def _measured(module: str, host: str, phase: str) -> tuple[float, int]:
    """The length of a phase that a process has only once, in seconds and in places."""
    length, places = 0.0, 0
    for _ in range(1 if phase == "end" else 2):
        program = Program(module, host, phase, length, places)
        found = program.hear(PREPARE)
        program.hear(PREPARE)
        ending = program.ended(END)
        length = length or (ending.seconds if phase == "end" else found["length"])
        places = found["places"]
    return length, places


def _outcomes(
    program: Program, host: str, phase: str, chosen: Sequence[Point]
) -> Iterator[Outcome]:
    """Those of one program's points; returns how many there were."""
    found: list[Outcome] = []
    step = "preparing"
    try:
        program.hear(PREPARE)
        for point in chosen:
            outcome = Outcome(host, phase, point)
            found.append(outcome)
            step = "preparing"
            begin = program.hear(PREPARE)
            delay = begin["delay"] or 0.0
            if begin["delay"] is not None:
                time.sleep(delay)
                program.interrupt(group=point.mode == "group")
            if phase == "end":
                break
            for step in ("interrupted", "same", "new"):
                line = program.hear(PROMISED)
                outcome.add(step, line["verdict"], line["seconds"], line["text"])
                outcome.where = outcome.where or line.get("where", "")
            if len(found) < len(chosen):
                yield outcome
        if phase != "end":
            step = "closing"
            program.hear(PROMISED)
    except Hang as hang:
        if found:
            found[-1].add(step, "hang", PROMISED, str(hang))
        program.kill()
    except Gone:
        pass
    ending = program.ended(END)
    if not found:
        found.append(Outcome(host, phase, chosen[0]))
        found[-1].add(step, "untyped", 0, ending.stderr[-3000:])
    _judge(found[-1], step, ending)
    yield found[-1]
    return len(found)


def _judge(outcome: Outcome, step: str, ending: Ending) -> None:
    """The program's own end."""
    if outcome.verdict == "hang":
        return
    outcome.seconds = max(outcome.seconds, ending.seconds)
    outcome.leftovers = ending.leftovers
    if ending.status is None:
        outcome.add("end", "hang", ending.seconds, ending.stderr[-3000:])
    elif ending.aborted:
        outcome.add(f"{step}, end", "abort", ending.seconds, ending.stderr[-3000:])
    elif ending.status != 0:
        interrupted = outcome.phase == "end" and ending.status in (-signal.SIGINT, 1, 130)
        if not interrupted:
            outcome.add(f"{step}, end", "untyped", ending.seconds, ending.stderr[-3000:])
