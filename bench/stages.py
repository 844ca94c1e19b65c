"""What a program and all processes that it started spend, stage by stage, from Linux's /proc."""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
WHO = ("launcher", "actors", "Ray")


@dataclass(frozen=True)
class Process:
    """What /proc/PID/stat says of one: seconds of the processor and faults of memory."""

    name: str
    parent: int
    user: float
    system: float
    faults: int


def processes() -> dict[int, Process]:
    """All that there are, by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            head, _, tail = stat.rpartition(")")
            f = tail.split()
            found[int(entry.name)] = Process(
                head.partition("(")[2], int(f[1]), int(f[11]) / TICKS, int(f[12]) / TICKS, int(f[7])
            )
    return found


def family(root: int) -> dict[int, Process]:
    """A process and all that it started, directly or not."""
    every = processes()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in every.items():
        children[process.parent].append(pid)
    found, queue = {}, [root]
    while queue:
        pid = queue.pop()
        if pid in every:
            found[pid] = every[pid]
        queue += children[pid]
    return found


@dataclass(frozen=True)
class Spent:
    """In one stage.

    Attributes:
        wall: seconds.
        processor: seconds of each of WHO.
        faults: of memory, all processes together.
        own: whether it's the bench's own work.
    """

    wall: float
    processor: dict[str, float]
    faults: int
    own: bool


class Stages:
    """A stage is entered with `with stages("name"):`, once or several times."""

    def __init__(self) -> None:
        self.spent: dict[str, list[Spent]] = {}

    @contextmanager
    def __call__(self, name: str, own: bool = False) -> Iterator[None]:
        """Spend time in a stage; `own`: which the bench takes for itself."""
        before, start = _used(), time.perf_counter()
        yield
        wall, used = time.perf_counter() - start, _used()
        used.subtract(before)
        spent = Spent(wall, {who: used[who] for who in WHO}, int(used["faults"]), own)
        self.spent.setdefault(name, []).append(spent)

    def median(self, name: str) -> float:
        """Seconds."""
        return statistics.median(s.wall for s in self.spent[name])

    def total_of(self, *names: str) -> float:
        """Seconds of some stages."""
        return sum(s.wall for name in names for s in self.spent[name])

    def total(self, own: bool) -> float:
        """Seconds of the bench's own stages, or of the others."""
        return sum(s.wall for every in self.spent.values() for s in every if s.own == own)

    def processor(self) -> float:
        """Seconds of all processes in all stages."""
        return sum(sum(s.processor.values()) for every in self.spent.values() for s in every)

    def table(self) -> str:
        """In Markdown."""
        rows = ["| stage | times | wall | processor | " + " | ".join(WHO) + " | faults |"]
        rows.append("|---" * (5 + len(WHO)) + "|")
        for name, every in self.spent.items():
            of = [sum(s.processor[who] for s in every) for who in WHO]
            cells = [f"{sum(s.wall for s in every):.2f} s", f"{sum(of):.2f} s"]
            cells += [f"{seconds:.2f} s" for seconds in of]
            faults = sum(s.faults for s in every)
            called = f"({name})" if every[0].own else name
            rows.append(f"| {called} | {len(every)} | {' | '.join(cells)} | {faults:,} |")
        return "\n".join(rows)


def _used() -> Counter[str]:
    """Seconds of the processor up to now by WHO, and faults of memory."""
    used: Counter[str] = Counter()
    here = os.getpid()
    every = family(here)
    for pid, process in every.items():
        starter = every.get(process.parent)
        worker = starter is not None and starter.name == "raylet" and not _is_agent(process.name)
        who = "launcher" if pid == here else "actors" if worker else "Ray"
        used[who] += process.user + process.system  # type: ignore[assignment]
        used["faults"] += process.faults
    return used


def _is_agent(name: str) -> bool:
    """Whether a process that the node manager started is none of its workers."""
    return name.startswith(("ray::Dashboard", "ray::RuntimeEnv"))
