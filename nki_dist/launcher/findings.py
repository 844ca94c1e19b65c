"""What is told of a launch beside its results: warnings, races, outputs that weren't stored."""

from __future__ import annotations

from typing import Any

from nki_dist.checks import Checks
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import NkiError, RaceError, RaceWarning, as_warning
from nki_dist.launcher.session import session
from nki_dist.launcher.unwritten import unwritten_after
from nki_dist.runtime.hosts import Host, Launch, LaunchResult
from nki_dist.runtime.races import check_races


def report_races(
    compiled: Compiled, result: LaunchResult, lnc: int, checks: Checks, first: int = 0
) -> None:
    """Compare what the cores of each rank did to shared tensors.

    Args:
        compiled: as it was run.
        first: the rank that core 0 of the reports is of.

    Raises:
        RaceError: for the first race; with `races="warn"` each rank's first is a RaceWarning.
    """
    races = "error" if compiled.races_are_errors else checks.races
    if races == "off":  # a program from a file is watched all the same
        return
    by_rank: dict[int, dict[int, Any]] = {}
    for report in result.reports:
        if report.records:
            rank, core = divmod(report.core, lnc)
            by_rank.setdefault(rank, {})[core] = report.records
    for rank, records in sorted(by_rank.items()):
        try:
            check_races(compiled, records, first + rank)
        except RaceError as error:
            if races == "error":
                raise
            session().warn(as_warning(error, RaceWarning))


def report_compiled(compiled: Compiled) -> None:
    """Give what compiling found, once the cores are known to come to their ends.

    Raises:
        UninitializedReadError: nothing is stored in an output.
    """
    for warning in compiled.warnings:
        session().warn(warning)
    for error in compiled.unstored:
        raise error


def report_findings(launch: Launch, result: LaunchResult, host: Host, checks: Checks) -> None:
    """Give the kernel's warnings, and those of what only its run could tell.

    Raises:
        UninitializedReadError: nothing is stored in an output, or `unwritten="strict"` and it holds
            what nobody wrote.
    """
    report_compiled(launch.compiled)
    if launch.compiled.undecided:
        for found in unwritten_after(launch, result, host, checks):
            if isinstance(found, NkiError):
                raise found
            session().warn(found)
