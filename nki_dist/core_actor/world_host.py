"""A world's processes on Ray, and the tensors that stay in its HBM: started, replaced, ended.

What was lost in one launch, a process, a node or the whole session, is replaced before the next.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import ray
import ray.exceptions

from nki_dist.core_actor.job import Encoded, Job, MessageMemory
from nki_dist.core_actor.lost import LOST, cause
from nki_dist.core_actor.metrics import LaunchMetrics
from nki_dist.core_actor.orders import Answer, Unmap
from nki_dist.core_actor.placement import Placement
from nki_dist.core_actor.ray_session import ensure_ray, refuse_fork
from nki_dist.core_actor.ray_use import Joined
from nki_dist.core_actor.request import NOTHING, Request
from nki_dist.core_actor.starting import refused
from nki_dist.core_actor.watchdog import Patience, SessionLost
from nki_dist.core_actor.world_actors import GRACE, WorldActors
from nki_dist.core_actor.world_regions import WorldRegions
from nki_dist.core_actor.world_stacks import WorldStacks
from nki_dist.errors import CoreLostError, LaunchError
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.contents import Fill, Place, Places
from nki_dist.hbm.layout import Given, Layouts
from nki_dist.runtime.executor import Stopped
from nki_dist.runtime.hosts import slots

TRIES: Final = 3  # of starting actors that die before they are up
NODE_TIMEOUT: Final = 60.0  # seconds after which Ray has surely noticed that a node is gone


class WorldHost:
    """The part of `RayHost` that has processes and memory."""

    def __init__(
        self,
        ranks: int,
        lnc: int,
        cores_per_actor: str | int = "auto",
        address: str | None = None,
        transport: str = "auto",
        ranks_per_instance: int | None = None,
        ranks_per_node: int = 0,
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
        self._regions: WorldRegions | None = None  # once a tensor stays in HBM
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
                lambda: self._joined.watchdog.settle(),
            )
        try:
            self._packs = self._placement.packs
            self._actors = WorldActors(self._placement, transport, threads)
        except BaseException:  # an interrupt
            self._placement.close()
            raise
        self._metrics = LaunchMetrics(self._actors.world, ranks)
        # What each process knows and has mapped:
        self._loaded: list[set[Any]] = [set() for _ in self._packs]
        self._mapped: list[Hashable] = [None] * len(self._packs)
        self._has: list[set[int]] = [set() for _ in self._packs]  # regions
        self._arenas: Mapping[int, ArenaHandle] = {}  # of the last launch
        self._brief: set[Hashable] = set()  # launches that took no longer than a row allows
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
            self._joined.watchdog.settle()
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
        if self._placement.lost(self._joined.watchdog.gone):
            self._placement.choose(self._joined.watchdog.gone)
            self._drop_stacks()
            self._drop_regions()
        self._joined.watchdog.watch(self._placement.nodes)
        self._metrics.begin()
        for n in self._actors.start(self._joined, self._messages.renamed()):
            self._loaded[n], self._has[n] = set(), set()
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
                self._joined.watchdog.check()
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
            self._joined.watchdog.check()
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

    def _renew(self, sound: bool) -> None:
        """Replace what was lost since the last launch, and wait for what was given up.

        A launch that was interrupted (Ctrl-C, timeout) was cancelled, but until its actors have
        answered they may still store into the stacks. Those that don't soon are replaced.

        Args:
            sound: whether nothing was interrupted that leaves the processes in an unknown state:
                else all are replaced.
        """
        refuse_fork(self._home)
        if self._joined.there() and self._joined.watchdog.lost():
            self._abandon()
        if not self._joined.there():
            watchdog = ensure_ray(self._address, self._home)
            self._forget()
            self._joined = Joined(watchdog)
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
                if node in self._joined.watchdog.gone and self._actors.actors[n] is not None:
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
        self._joined.watchdog.check()
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

    # ---- tensors that stay in HBM ---------------------------------------------------------------

    def era(self) -> int:
        """See Host."""
        with self._renewed():
            return self._era

    @contextmanager
    def _renewed(self) -> Iterator[None]:
        """With what was lost since the last launch replaced; an interrupt leaves it unsound."""
        sound, self._sound = self._sound, False
        try:
            self._renew(sound)
            yield
        except Exception:
            self._sound = True  # errors have their places, where all is put in order
            raise
        self._sound = True

    @contextmanager
    def _held(self) -> Iterator[WorldRegions]:
        with self._joined.used(self._abandon):
            if self._regions is None:
                self._regions = WorldRegions(
                    self._placement.groups(), self._actors.world, self._environment
                )
            try:
                yield self._regions
            except CoreLostError:
                self._drop_regions()  # those of a node, at least, are gone
                raise

    def hold(self, number: int, nbytes: int) -> None:
        """See Host."""
        with self._held() as regions:
            regions.hold(number, nbytes, self._patience())

    def drop(self, numbers: Sequence[int]) -> None:
        """See Host."""
        with self._held() as regions:
            self._unmap(numbers)
            regions.drop(numbers)

    def _unmap(self, numbers: Collection[int]) -> None:
        """Have processes let go of regions."""
        for n, has in enumerate(self._has):
            if mapped := has.intersection(numbers):
                self._actors.calls.unmap(n, Unmap(sorted(mapped)))
                has -= mapped

    def write(self, place: Place, values: Sequence[Given]) -> None:
        """See Host."""
        with self._held() as regions:
            regions.write(place, values, self._patience())

    def read(self, place: Place, nbytes: int) -> list[np.ndarray]:
        """See Host."""
        with self._held() as regions:
            return regions.read(place, nbytes, self._patience())

    def _poison(self, fills: Sequence[Fill], patience: Patience) -> None:
        """Fill tensors that nobody has written."""
        if fills:
            with self._held() as regions:
                regions.fill(fills, patience)

    def _patience(self) -> Patience:
        return Patience(self._joined.watchdog, None)

    def _drop_regions(self) -> None:
        """Let go of tensors that stay in HBM; there are none any more."""
        if self._regions is not None and os.getpid() == self._home:
            self._joined.watchdog.check()
            self._unmap(self._regions.handles)
            self._regions.close()
            self._era += 1
        self._regions = None

    def _refuse_unmapped(self, answers: Sequence[Answer]) -> None:
        """Raise if regions are gone that a process was to map."""
        if any(getattr(a.error, "code", "") == "stack-lost" for a in answers):
            self._drop_regions()
            raise CoreLostError("a process couldn't map HBM of this world, as its owner is gone")

    def _unmapped(self, n: int, rank: int, places: Places) -> dict[int, ArenaHandle]:
        """Regions that a process of a rank needs and hasn't mapped; from now on it has."""
        new = {number for _, (number, _) in places} - self._has[n]
        if not new:
            return {}
        assert self._regions is not None
        self._has[n] |= new
        return {number: self._regions.handles[number][rank] for number in new}
