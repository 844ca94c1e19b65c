"""Launches from threads that end soon, as fast as in a program that begins in its main thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.faults.interrupts import END
from tests.faults.supervised import Gone, Hang, Program

SECONDS = 60.0  # for a step
RATIO = 1.5  # of a step's time to that of a program whose first launch was the main thread's
SMALL = 0.003  # seconds that are noise, of one launch
SEVERAL = 1.5  # and of a step as a whole


@dataclass
class Step:
    """What came of one, in the program that began in a thread, and in the other one."""

    name: str
    verdict: str = "right"
    seconds: float = 0.0
    compared: float | None = None
    reference: Step | None = None
    text: str = ""
    leftovers: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """To the other program, of the step's fastest launch or of all, whichever is worse."""
        other = self.reference
        if other is None:
            return 1.0
        whole = self.seconds / (other.seconds + SEVERAL)
        if self.compared is None or other.compared is None:
            return whole
        return max(whole, self.compared / (other.compared + SMALL))

    @property
    def bad(self) -> bool:
        slow = self.ratio > RATIO
        return self.verdict != "right" or slow or bool(self.leftovers)


def threads(host: str) -> list[Step]:
    """All steps."""
    reference = {step.name: step for step in _steps(host, "main")}
    found = _steps(host, "thread")
    for step in found:
        step.reference = reference.get(step.name)
    return found


def _steps(host: str, first: str) -> list[Step]:
    program, found = Program("tests.faults.threaded", host, first), []
    try:
        while (line := program.hear(SECONDS))["step"] != "over":
            found.append(Step(line["step"], line["verdict"], line["seconds"], line["compared"]))
            found[-1].text = line["text"]
    except Hang as hang:
        found.append(Step("the next", "hang", SECONDS, text=str(hang)))
        program.kill()
    except Gone:
        pass
    ending = program.ended(END)
    if ending.status != 0 and (not found or found[-1].verdict != "hang"):
        verdict = "hang" if ending.status is None else "abort" if ending.aborted else "untyped"
        found.append(Step("end", verdict, ending.seconds, text=ending.stderr[-3000:]))
    elif ending.status == 0:
        found.append(Step("end", "right", ending.seconds, leftovers=ending.leftovers))
    return found
