"""What a process has launched, counted: for `nki-dist profile`, `bench` and `rank`.

Invariant: launches that take the same simulated time by construction (the same compiled kernel on
the same world, whose loops iterated equally often) are one entry. Nothing of their data is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nki_dist.compiler.compiled import Compiled
from nki_dist.forks import Shared
from nki_dist.launcher.binding import Args, Kwargs
from nki_dist.launcher.checking import Checker, Look
from nki_dist.launcher.profiles import Executed, executed
from nki_dist.runtime.hosts import Launch, LaunchResult, forced_algorithm


@dataclass
class Seen(Executed):
    """Launches that take the same simulated time by construction.

    Attributes:
        count: how many there were.
        host_seconds: what an observer measured of them, if anything.
    """

    count: int = 0
    host_seconds: float | None = None


class Tally(Shared):
    """An observer of launches (`Session.observer`) that counts them; for any number of threads."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[Any, Seen] = {}

    def __call__(self, world: Any, launch: Launch, result: LaunchResult) -> Seen:
        """Count a launch, and return its entry."""
        return self.count(world, launch.key, launch.compiled, world._algorithm, result.reports)

    def count(
        self, world: Any, key: Any, compiled: Compiled, algorithm: str, reports: Sequence[Any]
    ) -> Seen:
        """Count a launch of a kernel that `key` names in this process, and return its entry."""
        of = executed(world, algorithm, compiled, reports)
        full = (key, world.arch, world.ranks, world.lnc, algorithm, tuple(of.trips))
        with self._lock:
            seen = self._seen.get(full)
            if seen is None:
                seen = self._seen[full] = Seen(of.topology, algorithm, compiled, of.trips)
            seen.count += 1
            return seen

    def launches(self) -> list[Seen]:
        """All entries, in the order of their first launches."""
        with self._lock:
            return list(self._seen.values())


class TimingChecker(Checker):
    """A checker that also counts the launches that it looked at, to tell their simulated time.

    Attributes:
        tally: the launches whose cores come to their end.
        untimed: names of kernels with launches whose rounds of loops aren't known, because they
            depend on results that weren't computed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tally = Tally()
        self.untimed: list[str] = []

    def launch(self, world: Any, kernel: Any, grid: Any, args: Args, kwargs: Kwargs) -> Look:
        """Look at a launch, and count it."""
        look = super().launch(world, kernel, grid, args, kwargs)
        if (launched := look.launched()) is not None:
            compiled, reports = launched
            self.tally.count(world, id(compiled), compiled, forced_algorithm(), reports)
        elif look.name not in self.untimed:
            self.untimed.append(look.name)
        return look
