"""A world on Ray: one actor per core (or per pack of cores), HBM stacks in plasma.

The launcher starts all actors on a launch and supervises it: it returns when all are done, ends the
others when one fails, and asks for everybody's status when nothing happens for a while (`Watch`
decides whether that is a deadlock). Which actor runs where, and where the stacks are, is for
`Placement` and `WorldStacks`; here every actor is alike.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import uuid
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import ray.exceptions

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.encode import encode
from nki_dist.core_actor import bell
from nki_dist.core_actor.actor import Answer, NeuronCore, Order, Status
from nki_dist.core_actor.last_words import add_prints
from nki_dist.core_actor.links import Net
from nki_dist.core_actor.placement import Placement, WorldStacks, on_node
from nki_dist.core_actor.ray_session import ensure_ray, ray_session, refuse_fork
from nki_dist.core_actor.starting import await_start, refused
from nki_dist.core_actor.verdict import Watch
from nki_dist.errors import CoreLostError, LaunchError
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Layout, Layouts
from nki_dist.hbm.plasma import put_bytes
from nki_dist.runtime.hosts import Launch, LaunchResult, slots
from nki_dist.runtime.progress import Progress

LOOK_EVERY = 0.1  # seconds between looks at actors that don't finish, at first
LOOK_AT_LEAST_EVERY = 0.4  # and later: looking takes processor time away from the cores
NODE_TIMEOUT = 60.0  # seconds after which Ray has surely noticed that a node is gone
INLINE = 64 << 10  # larger programs travel as plasma objects


@dataclass(frozen=True)
class _Job:
    """A launch under way: its number, and where its tensors are."""

    number: int
    launch: Launch
    layout: Layout
    arenas: Mapping[int, ArenaHandle]

    @property
    def key(self) -> Any:
        """Names the program together with the inputs that are there once."""
        return self.launch.key, self.layout.common


class RayHost:
    """See the module's docstring."""

    def __init__(
        self,
        ranks: int,
        lnc: int,
        cores_per_actor: str | int = "auto",
        address: str | None = None,
        ranks_per_instance: int | None = None,
        ranks_per_node: int = 0,
        transport: str = "auto",
        home: int | None = None,
    ) -> None:
        self._home = os.getpid() if home is None else home
        ensure_ray(address, self._home)
        self._transport = transport
        self._address = address
        self._session = ray_session()
        self._unfinished: list[Any] = []
        self._name = uuid.uuid4().hex[:6]
        self._placement = Placement(
            slots(ranks, lnc, ranks_per_node), lnc, cores_per_actor, ranks_per_instance or ranks
        )
        self._packs = self._placement.packs
        self._actors: list[Any] = [None] * len(self._packs)
        self._cores = sum(map(len, self._packs))
        self._known: list[set[Any]] = [set() for _ in self._packs]
        self._mapped: list[Hashable] = [None] * len(self._packs)
        self._stacks: WorldStacks | None = None
        self._launches = itertools.count()
        self._layouts = Layouts()
        self._encoded: dict[Any, list[Any]] = {}
        self.processes: list[tuple[int, str]] = []
        self._start()

    # ---- actors ---------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the actors that aren't running, and introduce all to each other.

        A node that is dying may still be listed: what can't start there is started elsewhere once
        it is known to be gone.

        Raises:
            CoreLostError: actors can't be started for longer than a node takes to be given up.
            LaunchError: they don't start, and nobody says why, or Ray refuses them; nothing of this
                world is left.
        """
        end = time.monotonic() + NODE_TIMEOUT
        while True:
            try:
                self._start_missing()
                return
            except ray.exceptions.RayActorError as error:
                if time.monotonic() > end:
                    raise CoreLostError(
                        f"cores can't be started: {_cause(error)}", code="core-not-started"
                    ) from error
                self._forget_dead()
            except ray.exceptions.RaySystemError as error:
                self.close()
                raise refused(error) from error
            except LaunchError:
                self.close()
                raise

    def _forget_dead(self) -> None:
        """Find out, when one couldn't be reached, which actors are dead."""
        for n, actor in enumerate(self._actors):
            try:
                if actor is not None:
                    ray.get(actor.status.remote())
            except ray.exceptions.RayActorError:
                self._discard(n)
        time.sleep(LOOK_EVERY)

    def _discard(self, n: int) -> None:
        """Give an actor up; one that is only out of reach must not touch the stacks any more."""
        ray.kill(self._actors[n])
        self._actors[n] = None

    def _start_missing(self) -> None:
        if self._placement.lost():
            self._placement.choose()
            self._drop_stacks()
        if self._stacks is None:
            self._stacks = WorldStacks(self._placement.groups())
        for n, cores in enumerate(self._packs):
            if self._actors[n] is None:
                label = "-".join(str(c.core) for c in (cores[0], cores[-1])[: len(cores)])
                self._actors[n] = NeuronCore.options(  # type: ignore[attr-defined]
                    name=f"nki-{self._name}-core-{label}-{uuid.uuid4().hex[:4]}",
                    **on_node(self._placement.nodes[n]),
                ).remote(cores)
                self._known[n] = set()
                self._mapped[n] = None
        process_of = {c.core: n for n, cores in enumerate(self._packs) for c in cores}
        token = uuid.uuid4().hex
        connecting = [
            actor.connect.remote(Net(token, self._actors, n, process_of, self._near(n)))
            for n, actor in enumerate(self._actors)
        ]
        await_start(connecting, self._packs, self._placement.nodes)
        self.processes = ray.get(connecting)

    def _near(self, n: int) -> frozenset[int]:
        """The processes that process n reaches through shared memory."""
        nodes = self._placement.nodes
        if self._transport == "ring" and (len(set(nodes)) > 1 or not bell.possible()):
            raise LaunchError(
                f"transport='ring' is for processes of one Linux machine; this world has "
                f"{len(set(nodes))} Ray nodes on {sys.platform}: use transport='auto'",
                code="ring-transport",
            )
        if self._transport == "messages" or not bell.possible():
            return frozenset()
        return frozenset(m for m, node in enumerate(nodes) if node == nodes[n] and m != n)

    def close(self) -> None:
        """Stop the actors and release the stacks."""
        if ray.is_initialized() and os.getpid() == self._home:
            for actor in self._actors:
                if actor is not None:
                    ray.kill(actor)
        self._actors = [None] * len(self._packs)
        self._drop_stacks()
        self._encoded.clear()

    def _drop_stacks(self) -> None:
        if self._stacks is not None and os.getpid() == self._home:
            self._stacks.close()
        self._stacks = None

    # ---- launching ------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> LaunchResult:
        self._renew()
        assert self._stacks is not None
        layout = self._layouts.of(launch.key, launch.compiled.as_run, launch.inputs)
        try:
            if self._stacks.may_move(layout):
                self._release()
            arenas = self._stacks.fill(layout, launch.inputs)
            answers = self._run(_Job(next(self._launches), launch, layout, arenas))
            memories = self._finished(answers, launch, layout)
        except CoreLostError:
            self._drop_stacks()  # some may have been on a lost node
            raise
        return LaunchResult(layout, memories, [r for a in answers for r in a.reports])

    def _release(self) -> None:
        """Have the actors unmap the stacks: the store can't reuse what somebody has mapped."""
        mapped = [n for n, generation in enumerate(self._mapped) if generation is not None]
        try:
            ray.get([self._actors[n].release.remote() for n in mapped])
        except ray.exceptions.RayActorError as error:
            self._forget_dead()
            raise CoreLostError(f"a core died since the last launch ({_cause(error)})") from error
        self._mapped = [None] * len(self._packs)

    def _finished(self, answers: list[Answer], launch: Launch, layout: Layout) -> list[np.ndarray]:
        """Show what was printed, raise what was raised; else the contents of the stacks."""
        assert self._stacks is not None
        for answer in answers:
            for core, prefix, array in answer.printed:
                launch.printer(core, prefix, array)
        _raise_first(answers)
        return self._stacks.memories(layout)

    def _renew(self) -> None:
        """Replace what was lost since the last launch, and wait for what was given up.

        A launch that was interrupted (Ctrl-C, timeout) was cancelled, but until its actors have
        answered they may still store into the stacks.
        """
        refuse_fork(self._home)
        if not ray.is_initialized() or self._session != ray_session():
            ensure_ray(self._address, self._home)
            self._session = ray_session()
            self._actors = [None] * len(self._packs)
            self._stacks = None  # with the agents of the old session
            self._placement.choose()
            self._encoded.clear()
            self._unfinished = []
        if self._unfinished:
            ray.wait(self._unfinished, num_returns=len(self._unfinished), timeout=None)
            self._unfinished = []
        if None in self._actors or self._stacks is None:
            self._start()

    def _order(self, n: int, job: _Job) -> Order:
        code = None
        if job.key not in self._known[n]:
            code = (self._code(job.launch.key, job.launch.compiled), dict(job.layout.offsets))
            self._known[n].add(job.key)
        # A reference in a message costs Ray more than all the rest of it.
        arena = self._arena(n, job)
        known = self._mapped[n] == arena.generation
        return Order(job.number, job.key, code, None if known else arena)

    def _arena(self, n: int, job: _Job) -> ArenaHandle:
        return job.arenas[self._packs[n][0].rank]

    def _code(self, key: Any, compiled: Compiled) -> list[Any]:
        code = self._encoded.get(key)
        if code is None:
            code = []
            for program in compiled.programs:
                data = encode(program)
                code.append([put_bytes(data)] if len(data) > INLINE else data)
            self._encoded = {key: code}  # actors keep what they decoded; one is enough here
        return code

    def _run(self, job: _Job) -> list[Answer]:
        futures = [a.run.remote(self._order(n, job)) for n, a in enumerate(self._actors)]
        answers: list[Answer | None] = [None] * len(futures)
        try:
            self._supervise(job, futures, answers)
        except BaseException:  # Ctrl-C above all
            self._cancel(job.number, answers)
            self._unfinished = list(futures)
            raise
        return [a for a in answers if a is not None]

    def _supervise(self, job: _Job, futures: list[Any], answers: list[Answer | None]) -> None:
        """Collect an answer from every actor, or give up those that can't go on."""
        number = job.number
        watch = Watch(job.launch.timeout)
        progress = Progress(self._cores)
        pause = LOOK_EVERY
        while None in answers:
            waiting = [f for f, a in zip(futures, answers) if a is None]
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=pause)
            pause = min(1.5 * pause, LOOK_AT_LEAST_EVERY)
            for future in ready:
                n = futures.index(future)
                answer = self._collect(future, n, number)
                if answer.error is None:
                    self._mapped[n] = self._arena(n, job).generation
                if answer.unknown_program:
                    self._known[n].discard(job.key)
                    futures[n] = self._actors[n].run.remote(self._order(n, job))
                    continue
                answers[n] = answer
            failed = [a for a in answers if a is not None and a.error is not None]
            if failed and None in answers:
                self._cancel(number, answers)
            elif None in answers:
                silent = [n for n, a in enumerate(answers) if a is None]
                self._look(watch, number, answers, progress)
                if None not in answers:
                    add_prints(silent, futures, answers)
                    self._unfinished = list(futures)
        progress.close()

    def _collect(self, future: Any, n: int, number: int) -> Answer:
        try:
            answer: Answer = ray.get(future)
            return answer
        except (ray.exceptions.ActorDiedError, ray.exceptions.ActorUnavailableError) as error:
            self._discard(n)
            cores = ", ".join(str(c.core) for c in self._packs[n])
            lost = CoreLostError(
                f"the process that simulated core {cores} died during the launch; the other cores "
                f"were stopped and the next launch starts a new process ({_cause(error)})",
                core=self._packs[n][0].core,
            )
            return Answer(number, error=lost)

    def _cancel(self, number: int, answers: list[Answer | None]) -> None:
        for actor, answer in zip(self._actors, answers):
            if answer is None and actor is not None:
                actor.cancel.remote(number)

    def _look(
        self, watch: Watch, number: int, answers: list[Answer | None], progress: Progress
    ) -> None:
        """Nothing finished for a while: see whether anything still can."""
        try:
            statuses: list[Status] = ray.get(
                [a.status.remote() for a in self._actors if a is not None], timeout=10
            )
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError):
            return  # a death is reported by its own future; a busy actor isn't deadlocked
        done = [s.progress for s in statuses if s.launch == number]
        progress.ran(sum(n for n, _ in done), sum(n for _, n in done))
        error = watch.verdict(number, statuses)
        if error is None:
            return
        self._cancel(number, answers)
        for n, answer in enumerate(answers):
            if answer is None:
                answers[n] = Answer(number, error=error)


def _raise_first(answers: list[Answer]) -> None:
    """Raise the first failure, if any; a lost core explains failures of its peers."""
    errors = [a.error for a in answers if a.error is not None]
    for error in errors:
        if isinstance(error, CoreLostError):
            raise error
    if errors:
        raise errors[0]


def _cause(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
