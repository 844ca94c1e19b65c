"""The simulated time of a launch that isn't made.

A program says by itself which instructions it executes, but for its dynamic loops. Where it has
any, or waits for other cores, its skeleton is run (see runtime.dry), which counts the rounds and
refuses what would never end; otherwise there is nothing to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.launcher.binding import Args, BoundArguments, Kwargs
from nki_dist.launcher.findings import tell
from nki_dist.launcher.profiles import executed
from nki_dist.launcher.specs import SpecArguments
from nki_dist.program import Loop
from nki_dist.runtime.dry_report import DryRun
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing import Profile

Doubts: TypeAlias = "Callable[[Sequence[BoundArguments]], Collection[int]]"
"""Tells which inputs have no contents, by index."""


def nothing_unknown(bound: Sequence[BoundArguments]) -> Collection[int]:
    """For arguments that are arrays."""
    return ()


def reports_of(
    world: Any,
    compiled: Compiled,
    bound: Sequence[BoundArguments],
    unknown: Collection[int],
) -> list[CoreReport]:
    """What cores would tell of a launch: the rounds of loops.

    Args:
        bound: every rank's arguments.
        unknown: indices of the inputs without contents.

    Raises:
        NkiError: as `World.dry_run`.
    """
    if has_loops(compiled) or compiled.exchanges:
        found: list[CoreReport] = world.run_dry(compiled, bound, unknown)[1]
        return found
    cores = len(compiled.programs) * world.ranks
    return [CoreReport(core, [], 0, 0, 0, 0.0) for core in range(cores)]


def has_loops(compiled: Compiled) -> bool:
    """Whether it has dynamic loops, of which only a run can tell the rounds."""
    return any(isinstance(item, Loop) for p in compiled.programs for item in p.body)


def estimate_of(
    world: Any, kernel: Any, grid: Grid | None, args: Args, kwargs: Kwargs, schedule: str
) -> Profile:
    """The profile of a launch whose arguments may be TensorSpecs.

    Args:
        grid: None for what the kernel and the world say.
        schedule: "compiled" or "program".

    Raises:
        LaunchError: how often a loop iterates depends on an input without contents.
        NkiError: it doesn't compile, or its cores wait for each other in vain.
    """
    specs = SpecArguments()
    args, kwargs = specs.replaced_in(*world._arrays_for(args, kwargs))
    bound, _, compiled = world._compiled(kernel, grid, args, kwargs, specs.unknown)
    reports = reports_of(world, compiled, bound, specs.unknown(bound))
    profile = executed(world, forced_algorithm(), compiled, reports).profile(schedule)
    tell([*compiled.warnings, *compiled.unstored])
    return profile


def dry_run_of(world: Any, kernel: Any, args: Args, kwargs: Kwargs, schedule: str | None) -> DryRun:
    """A dry run of a launch whose arguments may be TensorSpecs.

    Args:
        schedule: "compiled" or "program" for a report with a profile, None for one without.

    Raises:
        NkiError: as `World.dry_run`.
    """
    specs = SpecArguments()
    args, kwargs = specs.replaced_in(*world._arrays_for(args, kwargs))
    bound, _, compiled = world._compiled(kernel, None, args, kwargs, specs.unknown)
    report: DryRun
    report, reports = world.run_dry(compiled, bound, specs.unknown(bound))
    tell([*compiled.warnings, *compiled.unstored])
    if schedule is None:
        return report
    profile = executed(world, forced_algorithm(), compiled, reports).profile(schedule)
    return replace(report, profile=profile)
