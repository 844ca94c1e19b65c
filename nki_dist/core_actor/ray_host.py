"""A world on Ray: one actor per core (or per pack of cores), HBM stacks in plasma.

Which actor runs where is for `Placement`, that it runs for `WorldActors`, and where the stacks are
for `WorldStacks`. A launch fills the stacks, has a `Supervisor` run all actors, and reads the
stacks. What was lost in one launch, a process, a node or the whole session, is replaced before the
next.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Hashable, Mapping
from typing import Any

import ray
import ray.exceptions

from nki_dist.core_actor import bell
from nki_dist.core_actor.calls import Calls
from nki_dist.core_actor.encoded import Encoded
from nki_dist.core_actor.job import MUCH, Job, MessageMemory
from nki_dist.core_actor.joined import Joined
from nki_dist.core_actor.lifeline import Patience, SessionLost
from nki_dist.core_actor.lost import LOST, cause
from nki_dist.core_actor.metrics import LaunchMetrics
from nki_dist.core_actor.orders import Answer, Order
from nki_dist.core_actor.placement import Placement
from nki_dist.core_actor.ray_session import ensure_ray, refuse_fork
from nki_dist.core_actor.region_host import RegionHost
from nki_dist.core_actor.request import NOTHING, Request
from nki_dist.core_actor.row import RowHost
from nki_dist.core_actor.starting import refused
from nki_dist.core_actor.supervise import GRACE, Supervisor, finish
from nki_dist.core_actor.world_actors import WorldActors
from nki_dist.core_actor.world_stacks import WorldStacks
from nki_dist.errors import CoreLostError, LaunchError, UnresponsiveWarning
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.freed import give_back
from nki_dist.hbm.layout import Layouts
from nki_dist.runtime.executor import Stopped
from nki_dist.runtime.hosts import Launch, LaunchResult, slots

KNOWN = 1024  # kernels of which one remembers that a process has them; others are sent again
TRIES = 3  # of starting actors that die before they are up
NODE_TIMEOUT = 60.0  # seconds after which Ray has surely noticed that a node is gone


class RayHost(RegionHost, RowHost):
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
        request: Request = NOTHING,
        threads: int | None = None,
    ) -> None:
        self._home = os.getpid() if home is None else home
        self._joined = Joined(ensure_ray(address, self._home))
        self._transport = transport
        self._address = address
        self._sound = True  # not if something was interrupted while it was being changed
        self._unfinished: set[int] = set()  # processes whose launch was given up
        self._job: Job | None = None
        self._messages = MessageMemory()
        self._stacks: WorldStacks | None = None
        self._regions = None
        self._era = 0
        self._launches = itertools.count()
        self._layouts = Layouts()
        self._encoded = Encoded()
        self._environment = request.environment
        every = slots(ranks, lnc, ranks_per_node)
        self._cores = len(every)
        with self._joined.used(lambda: self._joined.lose(None)):
            self._placement = Placement(
                every,
                lnc,
                cores_per_actor,
                ranks_per_instance or ranks,
                request,
                lambda: self._joined.lifeline.settle(),
            )
        try:
            self._packs = self._placement.packs
            self._actors = WorldActors(self._placement, transport, threads)
        except BaseException:  # an interrupt
            self._placement.close()
            raise
        self._metrics = LaunchMetrics(self._actors.world, ranks)
        self._known: list[set[Any]] = [set() for _ in self._packs]
        self._mapped: list[Hashable] = [None] * len(self._packs)
        self._has = [set() for _ in self._packs]
        self._arenas: Mapping[int, ArenaHandle] = {}
        self._brief: set[Hashable] = set()
        self._stopping = False
        try:
            with self._joined.used(self._abandon):
                self._start()
        except BaseException:
            self.close()
            raise

    # ---- actors ---------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the actors that aren't running, and introduce all to each other.

        A node that is dying may still be listed: what can't start there is started elsewhere once
        it is known to be gone. What dies on nodes that live is tried TRIES times.

        Raises:
            CoreLostError: actors can't be started for longer than a node takes to be given up.
            LaunchError: they don't start, and nobody says why, or Ray refuses them; nothing of this
                world is left.
        """
        end = time.monotonic() + NODE_TIMEOUT
        for tries in itertools.count(1):
            self._joined.lifeline.settle()
            try:
                self._start_missing()
                return
            except LOST as error:
                self._actors.discard_dead()
                late = time.monotonic() > end
                if late or (tries >= TRIES and self._actors.on_living_nodes()):
                    raise CoreLostError(
                        f"cores can't be started, tried {tries:,} times: {cause(error)}. "
                        f"{self._actors.missing()}; the logs of Ray's workers there say more",
                        code="core-not-started",
                    ) from error
            except (ray.exceptions.RaySystemError, LaunchError) as error:
                self.close()
                if isinstance(error, LaunchError):
                    raise
                raise refused(error) from error

    def discard(self, n: int) -> None:
        """Give a process up."""
        self._actors.discard(n)
        self._unfinished.discard(n)

    def _start_missing(self) -> None:
        if self._placement.lost(self._joined.lifeline.gone):
            self._placement.choose(self._joined.lifeline.gone)
            self._drop_stacks()
            self._drop_regions()
        self._joined.lifeline.watch(self._placement.nodes)
        self._metrics.begin()
        for n in self._actors.start(self._joined, self._messages.renamed()):
            self._known[n], self._has[n] = set(), set()
            self._mapped[n] = None
        if self._stacks is None:  # not before: a node that differs is told of sooner
            self._stacks = WorldStacks(
                self._placement.groups(), self._actors.world, self._environment
            )

    def close(self) -> None:
        """Stop the actors and release the stacks."""
        if os.getpid() != self._home:
            return
        try:
            if self._joined.there():
                self._joined.lifeline.check()
                self._actors.end()
                self._drop_stacks()
                self._drop_regions()
                self._placement.close()
        except SessionLost:
            self._abandon()
        self._forget()

    def _drop_stacks(self) -> None:
        """Let go of the stacks.

        Raises:
            SessionLost: Ray would end the program.
        """
        if self._stacks is not None and os.getpid() == self._home:
            self._joined.lifeline.check()
            self._stacks.close()
        self._stacks = None

    @property
    def actors(self) -> list[Any]:
        """Of all processes, None for those that aren't there."""
        return self._actors.actors

    @property
    def processes(self) -> list[tuple[int, str]]:
        """Number and Ray node of each process."""
        return self._actors.processes

    @property
    def calls(self) -> Calls:
        """How processes are called."""
        return self._actors.calls

    # ---- launching ------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> LaunchResult:
        """Run it; whatever an interrupt leaves half done is done anew by the next."""
        sound, self._sound = self._sound, False
        self._stopping = False
        try:
            self._renew(sound)
            with self._joined.used(self._abandon):
                try:
                    result = self._launch(launch)
                except CoreLostError:
                    self._drop_stacks()  # some may have been on a lost node
                    raise
        except Exception:
            self._sound = True  # errors have their places, where all is put in order
            raise
        self._sound = True
        return result

    def _launch(self, launch: Launch) -> LaunchResult:
        assert self._stacks is not None
        began = time.perf_counter()
        patience = Patience(self._joined.lifeline, launch.timeout)
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
        asked = [n for n, generation in enumerate(self._mapped) if generation is not None]
        self._mapped = [None] * len(self._packs)  # whether or not anybody waits until it is so
        token = None
        if self._messages.in_the_way:
            token, asked = self._messages.renamed(), list(range(len(self._packs)))
        try:
            self._ask({n: self._actors.actors[n].release.remote(token) for n in asked}, patience)
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

    def _renew(self, sound: bool) -> None:
        """Replace what was lost since the last launch, and wait for what was given up.

        A launch that was interrupted (Ctrl-C, timeout) was cancelled, but until its actors have
        answered they may still store into the stacks. Those that don't soon are replaced.

        Args:
            sound: whether nothing was interrupted that leaves the processes in an unknown state:
                else all are replaced.
        """
        refuse_fork(self._home)
        if self._joined.there() and self._joined.lifeline.lost():
            self._abandon()
        if not self._joined.there():
            lifeline = ensure_ray(self._address, self._home)
            self._forget()
            self._joined = Joined(lifeline)
            with self._joined.used(self._abandon):
                self._placement.choose()
        with self._joined.used(self._abandon):
            if not sound:
                self._actors.end()
                self._drop_stacks()
            if self._unfinished:
                for n in self._actors.calls.settle(self._unfinished, GRACE):
                    self.discard(n)
                    self._drop_stacks()
                self._unfinished = set()
            for n, node in enumerate(self._placement.nodes):
                if node in self._joined.lifeline.gone and self._actors.actors[n] is not None:
                    self.discard(n)
            if None in self._actors.actors or self._stacks is None:
                self._start()

    def stop(self) -> None:
        """See Host."""
        self._stopping = True

    def check(self) -> None:
        """See that the launch under way goes on.

        Raises:
            SessionLost: Ray is gone.
            Stopped: somebody ended it.
        """
        self._joined.lifeline.check()
        if self._stopping:
            raise Stopped

    def _abandon(self) -> None:
        """The session is lost, with actors, agents and objects."""
        self._joined.lose((self._stacks, self._regions, self._encoded))
        self._forget()

    def _forget(self) -> None:
        """Nothing of the session is there any more."""
        self._joined.over()
        self._placement.forget()
        self._actors.forget()
        self._metrics.end()
        self._stacks = None
        self._era += self._regions is not None
        self._regions = None
        self._encoded = Encoded()
        self._unfinished = set()

    # ---- what a Supervisor asks for -------------------------------------------------------------

    def order(self, n: int) -> None:
        """Have a process run the launch under way."""
        job = self._job
        assert job is not None
        code = None
        if job.key not in self._known[n]:
            code = (self._encoded.of(job.launch.key, job.launch.compiled), dict(job.layout.offsets))
            if len(self._known[n]) >= KNOWN:  # most are of kernels long gone
                self._known[n].clear()
            self._known[n].add(job.key)
        of = self._packs[n][0].rank
        regions = self._unmapped(n, of, job.launch.places)
        # A reference in a message costs Ray more than all the rest of it.
        arena = job.arenas[of]
        known = self._mapped[n] == arena.generation
        places = job.launch.places
        order = Order(job.number, job.key, code, None if known else arena, places, regions)
        by_post = self._transport != "messages" and bell.possible()
        self._actors.calls.order(n, order, self._actors.where.get(n) if by_post else None)

    def done(self, n: int, answer: Answer) -> None:
        """A process has answered: what it has mapped, and whether it knows the program."""
        job = self._job
        assert job is not None
        if answer.error is None:
            self._mapped[n] = job.arenas[self._packs[n][0].rank].generation
        self._messages.note(n, answer.message_memory, answer.lends_stacks)
        if answer.unknown_program:
            self._known[n].discard(job.key)

    def gone(self, n: int) -> str | None:
        """The Ray node of a process, if it has ended."""
        node = self._placement.nodes[n]
        return node if node in self._joined.lifeline.gone else None

    def warn(self, warning: UnresponsiveWarning) -> None:
        """Say something of a launch that goes on."""
        assert self._job is not None
        self._job.launch.warn(warning)
