"""The simulated time of a launch that isn't made.

A program says by itself which instructions it executes, but for its dynamic loops. Where it has
any, or waits for other cores, its skeleton is run (see runtime.dry), which counts the rounds and
refuses what would never end; otherwise there is nothing to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from nki_dist.compiler.compiled import Compiled
from nki_dist.launcher.binding import BoundArguments
from nki_dist.launcher.profiles import profile_of
from nki_dist.program import Loop
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing import Profile

Doubts: TypeAlias = "Callable[[Sequence[BoundArguments]], Collection[int]]"
"""Tells which inputs have no contents, by index."""


def nothing_unknown(bound: Sequence[BoundArguments]) -> Collection[int]:
    """For arguments that are arrays."""
    return ()


def estimated(
    world: Any, compiled: Compiled, bound: Sequence[BoundArguments], unknown: Collection[int]
) -> Profile:
    """The profile of a launch on a world.

    Args:
        bound: every rank's arguments.
        unknown: indices of the inputs without contents.

    Raises:
        LaunchError: how often a loop goes round depends on an input without contents.
        NkiError: its cores wait for each other in vain.
    """
    trips: list[Sequence[int]] = [()] * (len(compiled.programs) * world.ranks)
    loops = any(isinstance(item, Loop) for p in compiled.programs for item in p.body)
    if loops or compiled.exchanges:
        trips = [report.trips for report in world.run_dry(compiled, bound, unknown)[1]]
    return profile_of(world.topology, forced_algorithm(), compiled, trips)
