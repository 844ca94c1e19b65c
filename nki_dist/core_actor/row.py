"""Sends several launches with one order, so that processes needn't ask between two of them.

Between two launches all processes meet, by messages through their rings: a launch begins when the
one before has ended everywhere. Nobody judges here what goes wrong, or says how far it is. A row
that fails, or takes longer than PATIENCE, is given up, and who has ordered it carries out what
isn't done launch by launch. So only such launches go in a row that can be carried out twice: they
write nothing but new tensors.

Also not in a row: what took longer than BRIEF when it was last launched alone, or never was; what
the launcher has to copy or fill before; and what sends values between cores, whose memory is used
again when a launch begins.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from nki_dist.core_actor.job import Job
from nki_dist.core_actor.lost import LOST
from nki_dist.core_actor.orders import Answer, Order
from nki_dist.core_actor.world_host import WorldHost
from nki_dist.runtime.hosts import Launch, LaunchResult

MOST_BRIEF: Final = 1024  # launches that are remembered; others are made alone again
MOST_PROCESSES: Final = 4  # that meet: each sends a message to each
BRIEF: Final = 0.1  # seconds that a launch in a row takes; of longer ones little would be saved
PATIENCE: Final = 3.0  # seconds for a row: longer, and somebody is frozen, waits or says nothing
LOOK_EVERY: Final = 0.3  # seconds


class RowHost(WorldHost):
    """The part of `RayHost` that carries out rows."""

    def launch_row(self, launches: Sequence[Launch]) -> list[LaunchResult]:
        """What is left of the first of these, as many as were carried out everywhere."""
        self._stopping = False
        jobs = list(self._suitable(launches))
        if len(jobs) < 2:
            return []
        with self._joined.used(self._abandon):
            answers = self._ordered(jobs)
        found = []
        for n, job in enumerate(jobs):
            mine = [(a, *a.then)[n] for a in answers if n <= len(a.then)]
            if len(mine) < len(self._packs) or any(map(_failed, mine)):
                break
            for answer in mine:
                for printed in answer.printed:
                    job.launch.printer(*printed)
            found.append(LaunchResult(job.layout, [], [r for a in mine for r in a.reports]))
        return found

    def _suitable(self, launches: Sequence[Launch]) -> Iterator[Job]:
        """The first of these, as far as all processes can do without the launcher."""
        count = len(self._packs)
        by_mailbox = self._transport != "messages" and len(self._actors.where) == count
        if not by_mailbox or count > MOST_PROCESSES or self._unfinished:
            return
        for launch in launches:
            compiled = launch.compiled.as_run
            layout = self._layouts.of(launch.key, compiled, launch.inputs, launch.resident)
            job = Job(-1, launch, layout, self._arenas)
            filled = layout.unwritten or layout.poisoned
            if filled or not all(self._ready(n, job) for n in range(count)):
                return
            yield replace(job, number=next(self._launches))

    def _ready(self, n: int, job: Job) -> bool:
        """Whether a process needs nothing but the name of a launch."""
        arena = job.arenas.get(self._packs[n][0].rank)
        regions = {number for _, (number, _) in job.launch.places}
        mapped = arena is not None and self._mapped[n] == arena.generation
        fits = arena is not None and job.layout.stack_bytes <= arena.stride
        loaded = job.key in self._loaded[n] and job.key in self._brief
        return mapped and fits and loaded and regions <= self._has[n]

    def _took(self, key: Hashable, seconds: float) -> None:
        """A launch that was carried out alone has taken so long."""
        if seconds > BRIEF:
            self._brief.discard(key)
            return
        if len(self._brief) >= MOST_BRIEF:  # most are of kernels long gone
            self._brief.clear()
        self._brief.add(key)

    def _ordered(self, jobs: Sequence[Job]) -> list[Answer]:
        first, *others = [Order(j.number, j.key, places=j.launch.places) for j in jobs]
        order = replace(first, then=tuple(others))
        calls = self._actors.calls
        answers: dict[int, Answer] = {}
        self._unfinished = set(range(len(self._packs)))
        for n in range(len(self._packs)):
            calls.order(n, order, self._actors.where[n])
        ends = time.monotonic() + PATIENCE
        try:
            while missing := self._unfinished:
                self.check()
                for n, answer in calls.answers(set(missing), order.launch, LOOK_EVERY):
                    if isinstance(answer, Exception):
                        if not isinstance(answer, LOST):
                            raise answer
                        self._cancel(jobs)
                        return []  # the next launch finds out who is lost
                    self._unfinished.discard(n)
                    self._messages.note(n, answer.message_memory, answer.lends_stacks)
                    answers[n] = answer
                late = time.monotonic() > ends
                if self._unfinished and (late or any(map(_ended, answers.values()))):
                    self._cancel(jobs)
                    return []  # the next launch waits for them
        except BaseException:
            self._cancel(jobs)
            raise
        return list(answers.values())

    def _cancel(self, jobs: Sequence[Job]) -> None:
        for n, job in itertools.product(self._unfinished, jobs):
            if (actor := self._actors.actors[n]) is not None:
                actor.cancel.remote(job.number)


def _failed(answer: Answer) -> bool:
    return answer.error is not None or answer.cancelled or answer.unknown_program


def _ended(answer: Answer) -> bool:
    """Whether it ended before the last launch of the row."""
    return any(map(_failed, (answer, *answer.then)))
