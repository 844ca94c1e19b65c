"""A straight run of instructions, carried out by several threads."""

from __future__ import annotations

import math
import operator
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Final

import numpy as np

from nki_dist.linking.lanes import Schedule
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction
from nki_dist.runtime.team import Team

LOOK: Final = 16  # instructions between two looks at whether the run goes on, at most


class _What(Enum):
    """What a lane does for an instruction."""

    STEP = "the instruction"
    SIGNAL = "gives or awaits a signal"
    LOOK = "looks whether the run goes on"


class _Skip(Exception):
    """An earlier instruction failed, or the run was stopped."""


def _never() -> float:
    return math.inf


class _Watch:
    """Whether a run goes on. Steps have it, and it has nothing of theirs: no circle.

    Attributes:
        first: ordinal of the first instruction that is known to have failed.
        ends: gives the time when the run is given up.
        stopped: it was.
    """

    __slots__ = ("ends", "first", "stopped")

    def __init__(self) -> None:
        self.begin(_never)

    def begin(self, ends: Callable[[], float]) -> None:
        self.first, self.ends, self.stopped = math.inf, ends, False

    def stop(self) -> None:
        self.first, self.stopped = -1, True

    def look(self, ordinal: int) -> None:
        if time.monotonic() > self.ends():
            self.stop()
        if ordinal > self.first:
            raise _Skip


class Lanes:
    """What the lanes of a segment do, bound to a core.

    Whatever happens, every signal is given and awaited, so no lane waits for ever. After a failure
    only instructions that come before it in the program are carried out, so that the first failure
    is the one that one thread would have met.

    Args:
        steps: by lane, of its instructions in order.
        instructions: of all lanes, by node.
        schedule: which lane has which.
    """

    def __init__(
        self,
        steps: Sequence[Sequence[Step]],
        instructions: Sequence[Instruction],
        schedule: Schedule,
    ) -> None:
        self.instructions = instructions
        self._watch = _Watch()
        self._signals = [threading.Event() for _ in range(schedule.signals)]
        self._works: list[list[Step]] = []
        self._for: list[list[tuple[Instruction, _What]]] = []
        for mine, lane in zip(steps, schedule.lanes, strict=True):
            work: list[Step] = []
            purposes: list[tuple[Instruction, _What]] = []
            for n, (step, node) in enumerate(zip(mine, lane.nodes, strict=True)):
                i = instructions[node]
                waiting = [self._signals[signal].wait for signal in lane.waits.get(node, ())]
                giving = [self._signals[signal].set for signal in lane.signals.get(node, ())]
                # What was awaited may have failed: nothing that comes after it is to be seen.
                look = waiting or n % LOOK == 0
                looking = [partial(self._watch.look, i.ordinal)] if look else []
                work += [*waiting, *looking, step, *giving]
                purposes += [(i, _What.SIGNAL)] * len(waiting)
                purposes += [(i, _What.LOOK)] * len(looking)
                purposes += [(i, _What.STEP), *[(i, _What.SIGNAL)] * len(giving)]
            self._works.append(work)
            self._for.append(purposes)
        self._left: list[Iterator[Step]] = [iter(()) for _ in steps]
        self._failed: dict[int, tuple[Instruction, Exception]] = {}

    @property
    def stopped(self) -> bool:
        """Whether the last run was given up."""
        return self._watch.stopped

    def run(self, team: Team, ends: Callable[[], float]) -> tuple[Instruction, Exception] | None:
        """Carry all out; the first instruction in program order that fails, and how.

        Args:
            ends: gives the time, by time.monotonic(), when the run is given up.

        Returns:
            None if nothing fails; `stopped` says whether the run was given up.
        """
        self._watch.begin(ends)
        for signal in self._signals:
            signal.clear()
        self._left = [iter(work) for work in self._works]
        works = [partial(self._lane, w) for w in range(len(self._works))]
        try:
            team.run(works, self._watch.stop)
        finally:
            self._watch.ends = _never  # what was given is of the core, which has this
            failed, self._failed = self._failed, {}
        return failed[min(failed)] if failed else None

    def _lane(self, w: int) -> None:
        left, watch = self._left[w], self._watch
        with np.errstate(all="ignore"):  # of each thread
            while True:
                try:
                    if watch.first is math.inf:
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
                    watch.first = min(watch.first, i.ordinal)

    def _rest(self, w: int, left: Iterator[Step]) -> None:
        """What is left once something has failed, or this thread was interrupted: then it isn't
        known whether the last signal was given, or awaited, and to do so again does no harm."""
        at = self._at(w) - 1
        if at >= 0 and self._for[w][at][1] is _What.SIGNAL:
            self._works[w][at]()
        for step in left:
            i, what = self._for[w][self._at(w) - 1]
            if what is _What.SIGNAL or (what is _What.STEP and i.ordinal < self._watch.first):
                step()

    def _at(self, w: int) -> int:
        return len(self._works[w]) - operator.length_hint(self._left[w])

    def done(self) -> int:
        """Instructions carried out, or skipped, so far; any thread may ask."""
        begun = [of[: self._at(w)] for w, of in enumerate(self._for)]
        return sum(what is _What.STEP for of in begun for _, what in of)

    def now(self) -> Instruction:
        """What the first lane does; any thread may ask."""
        return self._for[0][max(self._at(0) - 1, 0)][0]
