"""Ray's processes killed and stopped, between and during launches, and what the launches give."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.harmed import UNDER_WAY
from tests.faults.interrupts import END, PREPARE, WORST
from tests.faults.supervised import Gone, Hang, Program, command, started

# How each is known by its command line; an actor, by its number.
VICTIMS = {
    "raylet": "raylet/raylet",
    "gcs_server": "gcs/gcs_server",
    "DashboardAgent": "DashboardAgent",
    "RuntimeEnvAgent": "RuntimeEnvAgent",
    "idle worker": "ray::IDLE",
    "actor": "",
}
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
TIMEOUT = 5.0  # seconds, of worlds whose processes are stopped
SOON = 8.0  # seconds in which a launch has come to something after a fault, or after the time-out
INTO = 1.0  # seconds into a launch
LATER = 3.0  # seconds from a fault to the next launch, in half of those between launches
HUNG = 45.0  # seconds
USUAL = 3.0  # seconds that Ray's start takes on a machine that does nothing else


class Harm(NamedTuple):
    """What is done to whom, and when."""

    victim: str
    how: str
    when: str
    retries: int

    def __str__(self) -> str:
        return "/".join(map(str, self)).replace(" ", "-")


def harms() -> list[Harm]:
    """All of them."""
    return [
        Harm(victim, how, when, retries)
        for victim in VICTIMS
        for how in SIGNALS
        for when in ("between", "during")
        for retries in (0, 1)
    ]


def sample(every: Sequence[Harm], count: int | None, seed: int) -> list[Harm]:
    """So many of them by a seed, in their order; all if None."""
    if count is None or count >= len(every):
        return list(every)
    chosen = set(random.Random(seed).sample(range(len(every)), count))
    return [harm for n, harm in enumerate(every) if n in chosen]


@dataclass
class Harmed:
    """What came of it: by launch, what and after how many seconds."""

    harm: Harm
    steps: dict[str, tuple[str, float]] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    there: bool = True
    start: float = USUAL  # seconds in which the program started its first Ray

    @property
    def verdict(self) -> str:
        return max((v for v, _ in self.steps.values()), key=WORST.index, default="right")

    @property
    def seconds(self) -> float:
        return max((s for _, s in self.steps.values()), default=0.0)

    @property
    def late(self) -> list[str]:
        """Launches that took longer than promised."""
        due = SOON + max(0.0, self.start - USUAL)
        if self.harm.how == "stop":
            due += TIMEOUT * (1 + self.harm.retries)
        elif self.harm.retries and self.harm.when == "during":
            due += UNDER_WAY  # which is run a second time
        return [name for name, (_, seconds) in self.steps.items() if seconds > due]

    @property
    def bad(self) -> bool:
        return self.verdict not in ("right", "typed") or bool(self.leftovers or self.late)


def harmed(harm: Harm) -> Harmed:
    """Do it, in a program of its own."""
    found = Harmed(harm)
    timeout = TIMEOUT if harm.how == "stop" else 0.0
    idle = ["idle"] if harm.victim == "idle worker" else []
    program = Program("tests.faults.harmed", harm.when, timeout, harm.retries, *idle)
    name = "preparing"
    try:
        ready = program.hear(PREPARE)
        found.start = ready["start"]
        victim = _victim(program, harm.victim, ready["actors"])
        found.there = victim is not None
        if harm.when == "during":
            program.hear(PREPARE)
            time.sleep(INTO)
        at = time.monotonic()
        if victim is not None:
            os.kill(victim, SIGNALS[harm.how])
        if harm.when == "between":
            time.sleep(LATER * (harm.retries == 0))
            program.go_on()
        for name, line in _launches(program):
            seconds = time.monotonic() - at if name == "under way" else line["seconds"]
            found.steps[name] = line["verdict"], seconds
            if line["verdict"] not in ("right", "typed"):
                found.details.append(f"{name}: {line['verdict']}\n{line['text']}")
    except Hang as hang:
        found.steps[name + " and then"] = "hang", HUNG
        found.details.append(f"after {name}: hang\n{hang}")
        program.kill()
    except Gone:
        pass
    ending = program.ended(END)
    if ending.status is None:
        found.steps["end"] = "hang", ending.seconds
        found.details.append(ending.stderr[-3000:])
    elif ending.status != 0 and found.verdict != "hang":
        found.steps["end"] = "abort", 0.0
        found.details.append(f"after {name}: status {ending.status}\n{ending.stderr[-2000:]}")
    elif found.verdict != "hang":
        found.steps["end"] = "right", ending.seconds
    found.leftovers = ending.leftovers if found.verdict != "hang" else []
    return found


def _launches(program: Program) -> Iterator[tuple[str, dict[str, object]]]:
    """What the launches came to, until the last."""
    name = ""
    while name != "same again":
        line = program.hear(HUNG)
        name = line["step"]
        if not name.endswith("begins"):
            yield name, line


def _victim(program: Program, victim: str, actors: list[int]) -> int | None:
    if victim == "actor":
        return actors[-1]
    found = [pid for pid in program.belonging() if VICTIMS[victim] in command(pid)]
    return min(found, key=started, default=None)
