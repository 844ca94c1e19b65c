"""What measurements share: time that survives a noisy machine, processes, tables.

Both sides of a comparison are timed in one run, in turn; medians and ratios count.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

RUNS = 5
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "spmd"


def example(name: str) -> ModuleType:
    """A module of examples/spmd, which are scripts that import each other by bare names."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for cells in rows:
        yield f"| {' | '.join(map(str, cells))} |"


def show(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, each row as it comes."""
    for line in table(columns, rows):
        print(line, flush=True)


def apart(*words: object, **options: Any) -> Any:
    """What a program gives in a Python process of its own: its last line, which is JSON.

    What else it prints is printed. `words` follow `python`; `options` are of `subprocess.run`.
    """
    command = [sys.executable, "-W", "ignore", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, **options)
    *shown, last = done.stdout.splitlines()
    print(*shown, sep="\n", end="\n" * bool(shown), flush=True)
    return json.loads(last)


@dataclass(frozen=True)
class Pair:
    """Two alternatives measured in turn: A B A B ...; seconds are medians."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """How many times longer ours takes."""
        return self.ours / self.theirs

    def cells(self, unit: float, digits: int) -> tuple[str, str, str]:
        """Both, in a unit of which a second has so many, and the ratio."""
        both = (f"{unit * s:.{digits}f}" for s in (self.ours, self.theirs))
        return *both, f"{self.ratio:.2f}"


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median(function: Callable[[], object], runs: int = RUNS) -> float:
    """Median seconds of several calls, after one that isn't counted."""
    function()
    return statistics.median(seconds(function) for _ in range(runs))


def in_turn(ours: Callable[[], object], theirs: Callable[[], object], runs: int = RUNS) -> Pair:
    """Median seconds of both, each call of one followed by a call of the other."""
    ours()
    theirs()
    a, b = [], []
    for _ in range(runs):
        a.append(seconds(ours))
        b.append(seconds(theirs))
    return Pair(statistics.median(a), statistics.median(b))
