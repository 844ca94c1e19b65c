"""A straight run of instructions, carried out by several threads."""

from __future__ import annotations

import math
import operator
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from nki_dist.ops.calls import Step
from nki_dist.program import Instruction
from nki_dist.runtime.team import Team

LOOK: Final = 16  # instructions between two looks at whether the run goes on


class _Skip(Exception):
    """An earlier instruction failed, or the run was stopped."""


class Lanes:
    """What the lanes of a segment do, bound to a core.

    Whatever happens, every signal is given and awaited, so no lane waits for ever and the next run
    finds all signals as this one did. After a failure only instructions that come before it in the
    program are carried out, so that the first failure is the one that one thread would have met.

    Args:
        steps: by lane, of its instructions in order.
        instructions: as many.
        waits, signals: by lane and place among its steps, numbers of signals.
        count: of signals.
    """

    def __init__(
        self,
        steps: Sequence[Sequence[Step]],
        instructions: Sequence[Sequence[Instruction]],
        waits: Sequence[dict[int, list[int]]],
        signals: Sequence[dict[int, list[int]]],
        count: int,
    ) -> None:
        locks = [threading.Lock() for _ in range(count)]
        for lock in locks:
            lock.acquire()
        self._works: list[list[Step]] = []
        self._for: list[list[tuple[Instruction, bool]]] = []  # whether it is the instruction's step
        for lane, of, before, after in zip(steps, instructions, waits, signals, strict=True):
            work: list[Step] = []
            made_for: list[tuple[Instruction, bool]] = []
            for n, (step, i) in enumerate(zip(lane, of, strict=True)):
                work += [locks[signal].acquire for signal in before.get(n, ())]
                if n % LOOK == 0:
                    work.append(partial(self._look, i.ordinal))
                made_for += [(i, False)] * (len(work) - len(made_for))
                work.append(step)
                made_for.append((i, True))
                work += [locks[signal].release for signal in after.get(n, ())]
                made_for += [(i, False)] * (len(work) - len(made_for))
            self._works.append(work)
            self._for.append(made_for)
        self._left: list[Iterator[Step]] = [iter(()) for _ in steps]
        self._first = math.inf  # ordinal of the first instruction that is known to have failed
        self._ends: Callable[[], float] = lambda: math.inf
        self._failed: dict[int, tuple[Instruction, Exception]] = {}

    def run(self, team: Team, ends: Callable[[], float]) -> tuple[Instruction, Exception] | None:
        """Carry all out; the first instruction in program order that fails, and how.

        Args:
            ends: gives the time, by time.monotonic(), when the run is given up.

        Returns:
            None if nothing fails; if the run was given up, whoever asks the time finds out.
        """
        self._first, self._ends, self._failed = math.inf, ends, {}
        self._left = [iter(work) for work in self._works]
        team.run([partial(self._lane, w) for w in range(len(self._works))], self._stop)
        return self._failed[min(self._failed)] if self._failed else None

    def _stop(self) -> None:
        self._first = -1

    def _look(self, ordinal: int) -> None:
        if time.monotonic() > self._ends():
            self._stop()
        if ordinal > self._first:
            raise _Skip

    def _lane(self, w: int) -> None:
        left = self._left[w]
        with np.errstate(all="ignore"):  # of each thread
            while True:
                try:
                    if self._first is math.inf:
                        for step in left:
                            step()
                    else:
                        self._rest(w, left)
                    return
                except _Skip:
                    continue
                except Exception as error:
                    i, _ = self._for[w][self._at(w) - 1]
                    self._failed[i.ordinal] = i, error
                    self._first = min(self._first, i.ordinal)

    def _rest(self, w: int, left: Iterator[Step]) -> None:
        """What is left once something has failed."""
        for step in left:
            i, own = self._for[w][self._at(w) - 1]
            if not own or i.ordinal < self._first:
                step()

    def _at(self, w: int) -> int:
        return len(self._works[w]) - operator.length_hint(self._left[w])

    def done(self) -> int:
        """Instructions carried out, or skipped, so far; any thread may ask."""
        return sum(
            sum(own for _, own in self._for[w][: self._at(w)]) for w in range(len(self._for))
        )

    def now(self) -> Instruction:
        """What the first lane does; any thread may ask."""
        return self._for[0][max(self._at(0) - 1, 0)][0]
