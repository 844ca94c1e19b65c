"""A world on Ray: one actor per core (or per pack of cores), HBM stacks in plasma.

Which actor runs where, and where the stacks are, is for `Placement` and `WorldStacks`; here every
actor is alike. A launch fills the stacks, has a `Supervisor` run all actors, and reads the stacks.
What was lost in one launch, a process, a node or the whole session, is replaced before the next.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray
import ray.exceptions

from nki_dist.core_actor.actor import Answer, Order
from nki_dist.core_actor.actors import Actors
from nki_dist.core_actor.calls import Calls
from nki_dist.core_actor.encoded import Encoded
from nki_dist.core_actor.job import MUCH, Job, MessageMemory
from nki_dist.core_actor.lifeline import Patience, SessionLost
from nki_dist.core_actor.links import Net
from nki_dist.core_actor.placement import Placement, WorldStacks, here
from nki_dist.core_actor.processes import Process
from nki_dist.core_actor.ray_session import ensure_ray, ray_session, refuse_fork
from nki_dist.core_actor.ray_use import ray_use, using_ray
from nki_dist.core_actor.starting import await_start, refused
from nki_dist.core_actor.supervise import GRACE, LOOK_EVERY, Supervisor, cause, raise_first
from nki_dist.errors import CoreLostError, LaunchError, UnresponsiveWarning
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.freed import give_back
from nki_dist.hbm.layout import Layout, Layouts
from nki_dist.runtime.hosts import Launch, LaunchResult, slots

NODE_TIMEOUT = 60.0  # seconds after which Ray has surely noticed that a node is gone


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
        self._lifeline = ensure_ray(address, self._home)
        self._transport = transport
        self._address = address
        self._session = ray_session()
        self._sound = True  # not if something was interrupted while it was being changed
        self._unfinished: set[int] = set()  # processes whose launch was given up
        self._actors = Actors()
        self._placement = Placement(
            slots(ranks, lnc, ranks_per_node), lnc, cores_per_actor, ranks_per_instance or ranks
        )
        self._packs = self._placement.packs
        self.actors: list[Any] = [None] * len(self._packs)
        self._born: dict[int, Process] = {}  # processes of this machine
        self.calls = Calls(self.actors)
        self._job: Job | None = None
        self._cores = sum(map(len, self._packs))
        self._known: list[set[Any]] = [set() for _ in self._packs]
        self._mapped: list[Hashable] = [None] * len(self._packs)
        self._messages = MessageMemory()
        self._stacks: WorldStacks | None = None
        self._launches = itertools.count()
        self._layouts = Layouts()
        self._encoded = Encoded()
        self.processes: list[tuple[int, str]] = []
        try:
            with self._in_session():
                self._start()
        except BaseException:
            self.close()
            raise

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
            self._lifeline.settle()
            try:
                self._start_missing()
                return
            except ray.exceptions.RayActorError as error:
                if time.monotonic() > end:
                    raise CoreLostError(
                        f"cores can't be started: {cause(error)}", code="core-not-started"
                    ) from error
                self._forget_dead()
            except ray.exceptions.RaySystemError as error:
                self.close()
                raise refused(error) from error
            except LaunchError:
                self.close()
                raise

    def _forget_dead(self) -> None:
        """Find out, when one couldn't be reached, which actors are dead or stopped."""
        asked = {n: a.status.remote() for n, a in enumerate(self.actors) if a is not None}
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=GRACE)
        for n, future in asked.items():
            try:
                if self.stopped(n):
                    self.discard(n)
                else:
                    ray.get(future, timeout=0)
            except ray.exceptions.RayActorError:
                self.discard(n)
            except ray.exceptions.GetTimeoutError:
                continue  # busy; whoever needs an answer says for how long
        time.sleep(LOOK_EVERY)

    def discard(self, n: int) -> None:
        """Give an actor up; one that is only out of reach must not touch the stacks any more."""
        ray.kill(self.actors[n])
        self.actors[n] = None
        self.calls.forget(n)
        self._unfinished.discard(n)
        if n in self._born and (process := self._born.pop(n)).stopped():
            process.kill()  # Ray asks a process to end, which such a one won't

    def _start_missing(self) -> None:
        for n in [n for n in self._born if self.stopped(n)]:
            self.discard(n)  # all are about to be introduced to each other
        if self._placement.lost(self._lifeline.gone):
            self._placement.choose(self._lifeline.gone)
            self._drop_stacks()
        self._lifeline.watch(self._placement.nodes)
        if self._stacks is None:
            self._stacks = WorldStacks(self._placement.groups())
        self._actors.borrow(self.actors.count(None))
        for n, cores in enumerate(self._packs):
            if self.actors[n] is None:
                self.actors[n] = self._actors.make(cores, self._placement.nodes[n])
                self._known[n] = set()
                self._mapped[n] = None
        process_of = {c.core: n for n, cores in enumerate(self._packs) for c in cores}
        token = self._messages.renamed()
        connecting = [
            actor.connect.remote(
                Net(token, self.actors, n, process_of, self._placement.near(n, self._transport))
            )
            for n, actor in enumerate(self.actors)
        ]
        await_start(connecting, self._packs, self._placement.nodes, self._lifeline.check)
        self.processes = ray.get(connecting)
        home = here()
        self._born = {
            n: Process.of(p) for n, (p, node) in enumerate(self.processes) if node == home
        }

    def close(self) -> None:
        """Stop the actors and release the stacks."""
        if os.getpid() != self._home:
            return
        if ray.is_initialized() and self._session == ray_session():
            if self._lifeline.lost():
                self._abandon()
                return
            for n, actor in enumerate(self.actors):
                if actor is not None:
                    ray.kill(actor)
                    if self.stopped(n):
                        self._born[n].kill()
            self._drop_stacks()
        self._forget()

    def _drop_stacks(self) -> None:
        """Let go of the stacks.

        Raises:
            SessionLost: Ray would end the program.
        """
        if self._stacks is not None and os.getpid() == self._home:
            self._lifeline.check()
            self._stacks.close()
        self._stacks = None

    # ---- launching ------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> LaunchResult:
        """Run it; whatever an interrupt leaves half done is done anew by the next."""
        sound, self._sound = self._sound, False
        try:
            self._renew(sound)
            with self._in_session():
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

    @contextmanager
    def _in_session(self) -> Iterator[None]:
        """While Ray is used: whatever fails because the session is gone is a CoreLostError."""
        with using_ray():
            try:
                yield
            except Exception as error:
                lost = isinstance(error, SessionLost)
                text = str(error) if lost else self._lifeline.lost(now_too=True)
                if text is None:
                    raise
                self._abandon()
                raise CoreLostError(
                    f"Ray lost this process: {text}, and with it all simulated cores. The next "
                    "launch starts Ray again, or joins the cluster again if the world has an "
                    "address"
                ) from error

    def _launch(self, launch: Launch) -> LaunchResult:
        assert self._stacks is not None
        patience = Patience(self._lifeline, launch.timeout)
        layout = self._layouts.of(launch.key, launch.compiled.as_run, launch.inputs)
        if self._stacks.may_move(layout):
            self._release(patience)
            if layout.stack_bytes * len(launch.inputs) > MUCH:
                give_back()
        arenas = self._stacks.fill(layout, launch.inputs, patience)
        answers = self._run(Job(next(self._launches), launch, layout, arenas), patience)
        memories = self._finished(answers, launch, layout, patience)
        return LaunchResult(layout, memories, [r for a in answers for r in a.reports])

    def _run(self, job: Job, patience: Patience) -> list[Answer]:
        self._job = job
        supervisor = Supervisor(self, job.number, self._cores, patience)
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
        self.calls.dismiss()
        asked = [n for n, generation in enumerate(self._mapped) if generation is not None]
        self._mapped = [None] * len(self._packs)  # whether or not anybody waits until it is so
        token = None
        if self._messages.in_the_way:
            token, asked = self._messages.renamed(), list(range(len(self.actors)))
        try:
            self._ask({n: self.actors[n].release.remote(token) for n in asked}, patience)
        except ray.exceptions.RayActorError as error:
            self._forget_dead()
            raise CoreLostError(f"a core died since the last launch ({cause(error)})") from error

    def _ask(self, futures: dict[int, Any], patience: Patience) -> None:
        """Wait for calls of processes; those that don't answer in time are given up."""

        def late(which: list[int]) -> str:
            numbers = list(futures)
            for n in (numbers[at] for at in which):
                self.discard(n)
            return "the " + ", the ".join(self.title(numbers[at]) for at in which)

        patience.wait(list(futures.values()), late)
        ray.get(list(futures.values()))

    def _finished(
        self, answers: list[Answer], launch: Launch, layout: Layout, patience: Patience
    ) -> list[np.ndarray]:
        """Show what was printed, raise what was raised; else the contents of the stacks."""
        assert self._stacks is not None
        for answer in answers:
            for core, prefix, array in answer.printed:
                launch.printer(core, prefix, array)
        raise_first(answers)
        return self._stacks.memories(layout, patience)

    def _renew(self, sound: bool) -> None:
        """Replace what was lost since the last launch, and wait for what was given up.

        A launch that was interrupted (Ctrl-C, timeout) was cancelled, but until its actors have
        answered they may still store into the stacks. Those that don't soon are replaced.

        Args:
            sound: whether nothing was interrupted that leaves the processes in an unknown state:
                else all are replaced.
        """
        refuse_fork(self._home)
        if ray.is_initialized() and self._session == ray_session() and self._lifeline.lost():
            self._abandon()
        if not ray.is_initialized() or self._session != ray_session():
            lifeline = ensure_ray(self._address, self._home)
            self._forget()
            self._lifeline, self._session = lifeline, ray_session()
            self._placement.choose()
        with self._in_session():
            if not sound:
                for n in [n for n, actor in enumerate(self.actors) if actor is not None]:
                    self.discard(n)
                self.calls.clear()
                self._drop_stacks()
            if self._unfinished:
                for n in self.calls.settle(self._unfinished, GRACE):
                    self.discard(n)
                    self._drop_stacks()
                self._unfinished = set()
            for n, node in enumerate(self._placement.nodes):
                if node in self._lifeline.gone and self.actors[n] is not None:
                    self.discard(n)
            if None in self.actors or self._stacks is None:
                self._start()

    def _abandon(self) -> None:
        """The session is lost, with actors, agents and objects."""
        ray_use().lose((self._stacks, self._encoded))
        self._forget()

    def _forget(self) -> None:
        """Nothing of the session is there any more."""
        self._session = ""
        self._lifeline.close()
        self._actors.close()
        self.actors[:] = [None] * len(self._packs)
        self._born = {}
        self._stacks = None
        self._encoded = Encoded()
        self.calls.clear()
        self._unfinished = set()

    # ---- what a Supervisor asks for -------------------------------------------------------------

    def order(self, n: int) -> None:
        """Have a process run the launch under way."""
        job = self._job
        assert job is not None
        code = None
        if job.key not in self._known[n]:
            code = (self._encoded.of(job.launch.key, job.launch.compiled), dict(job.layout.offsets))
            self._known[n].add(job.key)
        # A reference in a message costs Ray more than all the rest of it.
        arena = self._arena(n, job)
        known = self._mapped[n] == arena.generation
        order = Order(job.number, job.key, code, None if known else arena)
        self.calls.order(n, order, n in self._born and self._transport != "messages")

    def done(self, n: int, answer: Answer) -> None:
        """A process has answered: what it has mapped, and whether it knows the program."""
        job = self._job
        assert job is not None
        if answer.error is None:
            self._mapped[n] = self._arena(n, job).generation
        self._messages.note(n, answer.message_memory, answer.lends_stacks)
        if answer.unknown_program:
            self._known[n].discard(job.key)

    def title(self, n: int) -> str:
        """A process as messages call it."""
        names = [f"core {c.name}" if isinstance(c.name, int) else c.name for c in self._packs[n]]
        shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        return f"process {self.processes[n][0]} that simulates {shown}"

    def core(self, n: int) -> int:
        """The first core of a process."""
        return self._packs[n][0].core

    def gone(self, n: int) -> str | None:
        """The Ray node of a process, if it has ended."""
        node = self._placement.nodes[n]
        return node if node in self._lifeline.gone else None

    def stopped(self, n: int) -> bool:
        """Whether a process is known to be stopped, which only this machine's can be."""
        return n in self._born and self._born[n].stopped()

    def warn(self, warning: UnresponsiveWarning) -> None:
        """Say something of a launch that goes on."""
        assert self._job is not None
        self._job.launch.warn(warning)

    def _arena(self, n: int, job: Job) -> ArenaHandle:
        return job.arenas[self._packs[n][0].rank]
