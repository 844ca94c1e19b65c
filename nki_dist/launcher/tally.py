"""What a process has launched, counted: for `nki-dist profile` and `nki-dist bench`.

Invariant: launches that take the same simulated time by construction (the same compiled kernel on
the same world, whose loops went round equally often) are one entry. Nothing of their data is kept.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from nki_dist.compiler.compiled import Compiled
from nki_dist.launcher.profiles import profile_of
from nki_dist.runtime.hosts import Launch, LaunchResult
from nki_dist.timing import Profile
from nki_dist.topology.topology import Topology


@dataclass
class Seen:
    """Launches that are alike.

    Attributes:
        topology, algorithm: of the world they ran on.
        trips: per core, the rounds of its dynamic loops.
        count: how many there were.
        host_seconds: what an observer measured of them, if anything.
    """

    topology: Topology
    algorithm: str
    compiled: Compiled
    trips: list[tuple[int, ...]]
    count: int = 0
    host_seconds: float | None = None

    def profile(self) -> Profile:
        """Their simulated time."""
        return profile_of(self.topology, self.algorithm, self.compiled, self.trips)


class Tally:
    """An observer of launches (`Session.observer`) that counts them; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Any, Seen] = {}

    def __call__(self, world: Any, launch: Launch, result: LaunchResult) -> Seen:
        """Count a launch, and return its entry."""
        reports = sorted(result.reports, key=lambda r: r.core)
        trips = [tuple(r.trips) for r in reports]
        key = (launch.key, world.arch.instance, world.ranks, world._algorithm, tuple(trips))
        with self._lock:
            seen = self._seen.get(key)
            if seen is None:
                seen = self._seen[key] = Seen(
                    world.topology, world._algorithm, launch.compiled, trips
                )
            seen.count += 1
            return seen

    def launches(self) -> list[Seen]:
        """All entries, in the order of their first launches."""
        with self._lock:
            return list(self._seen.values())
