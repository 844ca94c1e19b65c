"""A world on Ray: one actor per core (or per pack of cores), HBM stacks in plasma.

Which actor runs where is for `Placement`, that it runs for `WorldActors`, and where the stacks are
for `WorldStacks`. A launch fills the stacks, has a `Supervisor` run all actors, and reads the
stacks.
"""

from __future__ import annotations

import time
from typing import Any

import ray
import ray.exceptions

from nki_dist.core_actor.job import MUCH, Job
from nki_dist.core_actor.lost import LOST, cause
from nki_dist.core_actor.orders import Answer, Order
from nki_dist.core_actor.row import RowHost
from nki_dist.core_actor.supervise import Supervisor, finish
from nki_dist.core_actor.watchdog import Patience, SessionLost
from nki_dist.errors import CoreLostError, UnresponsiveWarning
from nki_dist.hbm.freed import give_back
from nki_dist.runtime.hosts import Launch, LaunchResult

MOST_LOADED = 1024  # kernels of which one remembers that a process has them; others are sent again


class RayHost(RowHost):
    """See the module's docstring."""

    # ---- launching ------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> LaunchResult:
        """Run it; whatever an interrupt leaves half done is done anew by the next."""
        self._stopping = False
        era = self._era
        with self._renewed(), self._joined.used(self._abandon):
            if launch.places and self._era != era:  # nobody had noticed when it asked for the era
                raise CoreLostError(
                    "HBM of this world, where tensors of the launch were, was lost before it began"
                )
            try:
                return self._launch(launch)
            except CoreLostError:
                self._drop_stacks()  # some may have been on a lost node
                raise

    def _launch(self, launch: Launch) -> LaunchResult:
        assert self._stacks is not None
        began = time.perf_counter()
        patience = Patience(self._joined.watchdog, launch.timeout)
        compiled = launch.compiled.as_run
        layout = self._layouts.of(launch.key, compiled, launch.inputs, launch.resident)
        if self._stacks.may_move(layout):
            self._release(patience)
            if layout.stack_bytes * len(launch.inputs) > MUCH:
                give_back()
        arenas = self._arenas = self._stacks.fill(layout, launch.inputs, patience)
        self._poison(launch.poisoned(layout), patience)
        job = Job(next(self._launches), launch, layout, arenas)
        answers = self._run(job, patience)
        self._refuse_unmapped(answers)
        finish(answers, launch.printer)
        memories = self._stacks.memories(layout, patience)
        self._metrics.add(began, layout, arenas, answers)
        self._took(job.key, time.perf_counter() - began)
        return LaunchResult(layout, memories, [r for a in answers for r in a.reports])

    def _run(self, job: Job, patience: Patience) -> list[Answer]:
        self._job = job
        supervisor = Supervisor(self, self._actors, job.number, self._cores, patience)
        try:
            return supervisor.run()
        except SessionLost:
            raise
        except BaseException:  # Ctrl-C above all
            supervisor.cancel()
            raise
        finally:
            self._job = None
            self._unfinished = supervisor.unfinished()
            self._sound = supervisor.ordered  # whatever they do now, it is known who does

    def _release(self, patience: Patience) -> None:
        """Have the actors unmap the stacks: the store can't reuse what somebody has mapped.

        Where messages needed much memory, they let go of that, too: then the larger stacks have it,
        and it isn't there twice.
        """
        self._actors.calls.dismiss()
        numbers = [n for n, generation in enumerate(self._mapped) if generation is not None]
        self._mapped = [None] * len(self._packs)  # whether or not anybody waits until it is so
        token = None
        if self._messages.in_the_way:
            token, numbers = self._messages.renamed(), list(range(len(self._packs)))
        try:
            self._ask({n: self._actors.actors[n].release.remote(token) for n in numbers}, patience)
        except LOST as error:
            self._actors.discard_dead()
            raise CoreLostError(f"a core died since the last launch ({cause(error)})") from error

    def _ask(self, futures: dict[int, Any], patience: Patience) -> None:
        """Wait for calls of processes; those that don't answer in time are given up."""

        def late(which: list[int]) -> str:
            numbers = list(futures)
            for n in (numbers[at] for at in which):
                self.discard(n)
            return "the " + ", the ".join(self._actors.title(numbers[at]) for at in which)

        patience.wait(list(futures.values()), late)
        ray.get(list(futures.values()))

    # ---- what a Supervisor asks for -------------------------------------------------------------

    def order(self, n: int) -> None:
        """Have a process run the launch under way."""
        job = self._job
        assert job is not None
        code = None
        if job.key not in self._loaded[n]:
            code = (self._encoded.of(job.launch.key, job.launch.compiled), dict(job.layout.offsets))
            if len(self._loaded[n]) >= MOST_LOADED:  # most are of kernels long gone
                self._loaded[n].clear()
            self._loaded[n].add(job.key)
        of = self._packs[n][0].rank
        regions = self._unmapped(n, of, job.launch.places)
        # A reference in a message costs Ray more than all the rest of it.
        arena = job.arenas[of]
        mapped = self._mapped[n] == arena.generation
        places = job.launch.places
        order = Order(job.number, job.key, code, None if mapped else arena, places, regions)
        by_mailbox = self._transport != "messages"
        self._actors.calls.order(n, order, self._actors.where.get(n) if by_mailbox else None)

    def done(self, n: int, answer: Answer) -> None:
        """A process has answered: what it has mapped, and whether it knows the program."""
        job = self._job
        assert job is not None
        if answer.error is None:
            self._mapped[n] = job.arenas[self._packs[n][0].rank].generation
        self._messages.note(n, answer.message_memory, answer.lends_stacks)
        if answer.unknown_program:
            self._loaded[n].discard(job.key)

    def gone(self, n: int) -> str | None:
        """The Ray node of a process, if it has ended."""
        node = self._placement.nodes[n]
        return node if node in self._joined.watchdog.gone else None

    def warn(self, warning: UnresponsiveWarning) -> None:
        """Say something of a launch that goes on."""
        assert self._job is not None
        self._job.launch.warn(warning)
