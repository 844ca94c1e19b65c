"""Timing that survives a noisy machine: both sides in one run, in turn, medians and ratios."""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

RUNS = 5
EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "spmd"


def example(name: str) -> ModuleType:
    """A module of examples/spmd, which are scripts that import each other by bare names."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


@dataclass(frozen=True)
class Pair:
    """Two alternatives measured in turn: A B A B ...; seconds are medians."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """How many times longer ours takes."""
        return self.ours / self.theirs


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
