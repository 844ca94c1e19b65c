"""Adds up what a core executed, by kind, in NumPy: launches have millions of instructions.

Instructions of one line and one pattern (see `fixed`) are of one kind: they have their opcode,
engine and cost in common. Invariant: sums add in the order of the positions, one after the other,
so they are those of a plain loop to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nki_dist.isa.spec import Cost
from nki_dist.program import Instruction
from nki_dist.timing.timeline import CoreTimeline


class Kinds:
    """The kinds of one core's instructions, in the order in which they first come.

    Attributes:
        examples: an instruction of each kind.
        costs: what each costs.
        of: for each position, its kind.
        counts: how often each is executed.
    """

    def __init__(self, core: CoreTimeline) -> None:
        self.examples: list[Instruction] = []
        numbers: dict[tuple[int, int], int] = {}
        of: list[int] = []
        for i, pattern in zip(core.graph.executed, map(id, core.patterns), strict=True):
            kind = numbers.setdefault((i.location, pattern), len(numbers))
            if kind == len(self.examples):
                self.examples.append(i)
            of.append(kind)
        self.of: NDArray[np.intp] = np.array(of, np.intp)
        self.costs: list[Cost] = [core.costs[i.ordinal] for i in self.examples]
        self.counts: list[int] = np.bincount(self.of, minlength=len(numbers)).tolist()


def sums(which: ArrayLike, values: ArrayLike, n: int) -> list[float]:
    """For each of `n` numbers, the sum of the values where `which` is that number."""
    found: list[float] = np.bincount(
        np.asarray(which, np.intp), np.asarray(values, np.float64), n
    ).tolist()
    return found


def added(first: float, values: ArrayLike) -> float:
    """`first` and all the values, added from left to right."""
    return float(np.cumsum(np.concatenate(([first], values)))[-1])


def durations(starts: Sequence[float], ends: Sequence[float]) -> NDArray[np.float64]:
    return np.asarray(ends, np.float64) - np.asarray(starts, np.float64)
