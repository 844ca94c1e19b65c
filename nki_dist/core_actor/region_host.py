"""A world's tensors that stay in HBM, as its host on Ray has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nki_dist.core_actor.joined import Joined
from nki_dist.core_actor.lifeline import Patience
from nki_dist.core_actor.orders import Answer, Unmap
from nki_dist.core_actor.placement import Placement
from nki_dist.core_actor.world_actors import WorldActors
from nki_dist.core_actor.world_regions import WorldRegions
from nki_dist.errors import CoreLostError
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.contents import Fill, Place, Places
from nki_dist.hbm.layout import Given


class RegionHost:
    """The part of `RayHost` that makes, fills and drops regions."""

    _home: int
    _joined: Joined
    _placement: Placement
    _actors: WorldActors
    _environment: Mapping[str, Any]
    _abandon: Callable[[], None]
    _renew: Callable[[bool], None]
    _sound: bool
    _regions: WorldRegions | None  # once a tensor stays in HBM
    _era: int
    _has: list[set[int]]  # regions that each process has mapped

    def era(self) -> int:
        """See Host."""
        sound, self._sound = self._sound, False
        try:
            self._renew(sound)
        except Exception:
            self._sound = True
            raise
        self._sound = True
        return self._era

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
        return Patience(self._joined.lifeline, None)

    def _drop_regions(self) -> None:
        """Let go of tensors that stay in HBM; there are none any more."""
        if self._regions is not None and os.getpid() == self._home:
            self._joined.lifeline.check()
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
