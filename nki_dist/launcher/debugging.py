"""Launches of debugged kernels: `nki.debug` and `World(host="debug")`.

What a launch does before and after its run is what other hosts' launches do: arguments, races,
messages nobody took, outputs nobody stored, results. Ranks may have run different programs, so
what compares programs is asked rank by rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.locations import name_of
from nki_dist.errors import NkiError, NkiWarning
from nki_dist.launcher.binding import BoundArguments, collect_outputs
from nki_dist.launcher.findings import findings, report_races, tell
from nki_dist.launcher.results import check_written, inputs_as_run, read_outputs
from nki_dist.launcher.session import session
from nki_dist.runtime.hosts import Launch, LaunchResult
from nki_dist.runtime.settings import precise_fp
from nki_dist.runtime.stepping.again import run_again
from nki_dist.runtime.stepping.host import Question, Stepped, run_debugged
from nki_dist.runtime.unread import check_messages


def launch_debugged(
    world: Any,
    kernel: Any,
    grid: Grid,
    bound: Sequence[BoundArguments],
) -> tuple[list[Any], LaunchResult, Compiled]:
    """Run a kernel on every rank as it is traced.

    Args:
        world: that launches it, on the host "debug".
        kernel: an `nki.jit` kernel or a plain function.
        grid: of the launch.
        bound: every rank's arguments.

    Returns:
        What each rank returned, what is left of the launch, and what rank 0 ran.

    Raises:
        NkiError: what goes wrong on any core, or what other hosts' checks find.
    """
    launch = _Debugged(world, kernel, grid, bound)
    launch.report()
    first = launch.stepped.compiled[0]
    result = launch.result
    if (observer := session().observer) is not None:
        observer(world, replace(launch.ordinary(0), inputs=launch.every_input()), result)
    launch.find()
    return launch.outputs(), result, first


class _Debugged:
    """A launch that has been run."""

    def __init__(
        self, world: Any, kernel: Any, grid: Grid, bound: Sequence[BoundArguments]
    ) -> None:
        self.world = world
        self.bound = bound
        self.slots = world.slots
        function = getattr(kernel, "fn", kernel)
        self.stepped: Stepped = run_debugged(
            Question(
                function,
                name_of(function),
                world.arch,
                grid,
                collect_outputs(function),
                world.checks,
                precise_fp(),
                [b.bind for b in bound],
                [b.signatures for b in bound],
                [b.arrays for b in bound],
                self.inputs,
                self.slots,
                world.topology,
                world.printer,
                world.timeout,
            )
        )
        stepped = self.stepped
        programs = [p for compiled in stepped.compiled for p in compiled.programs]
        self.result = LaunchResult(
            stepped.layouts[0], stepped.memories, stepped.reports, programs=programs
        )

    def inputs(self, rank: int, compiled: Compiled) -> Sequence[np.ndarray[Any, Any]]:
        """A rank's arrays by index, with the types of what it runs."""
        return inputs_as_run(compiled, [self.bound[rank]])[0]

    def every_input(self) -> list[Sequence[np.ndarray[Any, Any]]]:
        """All ranks' arrays."""
        return [self.inputs(n, compiled.as_run) for n, compiled in enumerate(self.stepped.compiled)]

    def ordinary(self, rank: int) -> Launch:
        """The launch as other hosts know it, of one rank."""
        compiled = self.stepped.compiled[rank]
        arrays = [self.inputs(rank, compiled.as_run)]
        return Launch(
            compiled.key,
            compiled,
            arrays,
            self.world.printer,
            self.world.timeout,
            session().warn,
        )

    def _of(self, rank: int) -> LaunchResult:
        """What is left of one rank."""
        lnc, stepped = self.world.lnc, self.stepped
        reports = [
            replace(report, core=report.core - rank * lnc)
            for report in stepped.reports
            if report.core // lnc == rank
        ]
        return LaunchResult(stepped.layouts[rank], [stepped.memories[rank]], reports)

    def report(self) -> None:
        """Refuse messages that nobody took, races, and one array with several contents."""
        lnc, ranks = self.world.lnc, self.world.ranks
        if any(c.exchanges for c in self.stepped.compiled):
            check_messages(self.stepped.reports, lnc if ranks > 1 else 0)
        for rank, compiled in enumerate(self.stepped.compiled):
            if compiled.watched:
                report_races(compiled.as_run, self._of(rank), lnc, self.world.checks, rank)
        if ranks > 1:
            check_written(
                [c.as_run for c in self.stepped.compiled],
                self.stepped.layouts,
                self.stepped.memories,
                self.bound,
            )

    def find(self) -> None:
        """Give the warnings of every rank, and refuse outputs that nobody stored."""
        found: dict[str, NkiError | NkiWarning] = {}
        for rank, compiled in enumerate(self.stepped.compiled):
            if compiled.warnings or compiled.undecided or compiled.unstored:
                launch, again = self.ordinary(rank), partial(self.again, rank)
                for one in findings(launch, self._of(rank), again, self.world.checks):
                    found.setdefault(str(one), one)  # ranks that do the same find the same
        tell(found.values())

    def again(self, rank: int, launch: Launch) -> LaunchResult:
        """What a rank ran once more, in memory that holds zeros; the others run with it."""
        zeroed = [c.zeroed.as_run for c in self.stepped.compiled]
        layouts, memories, reports = run_again(self.slots, zeroed, self.inputs)
        return LaunchResult(layouts[rank], [memories[rank]], reports)

    def outputs(self) -> list[Any]:
        """What each rank returned; inputs that were written go back to their arrays."""
        stepped = self.stepped
        return [
            read_outputs(compiled.as_run, layout, memory, b)
            for compiled, layout, memory, b in zip(
                stepped.compiled, stepped.layouts, stepped.memories, self.bound
            )
        ]
