"""What is told of a launch beside its results: warnings, races, outputs that weren't stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from nki_dist.checks import Checks
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import (
    CompilerMayRejectWarning,
    NkiError,
    NkiWarning,
    RaceError,
    RaceWarning,
    ReleaseWarning,
    UnwrittenOutputWarning,
    as_warning,
)
from nki_dist.launcher.session import session
from nki_dist.launcher.unwritten import unwritten_after
from nki_dist.ranges import named
from nki_dist.runtime.hosts import Attempt, Launch, LaunchResult
from nki_dist.runtime.races import check_races
from nki_dist.runtime.unread import check_messages

SUMMED: Final[Mapping[type[NkiWarning], str]] = {
    CompilerMayRejectWarning: "AWS's compiler may refuse {} places of this kernel",
    ReleaseWarning: "releases of NKI differ in {} things that this kernel uses",
    UnwrittenOutputWarning: "{} returned tensors are stored in part",
}
"""Warnings that one launch can have many of: what is said of them together."""


def report_races(
    compiled: Compiled, result: LaunchResult, lnc: int, checks: Checks, first: int = 0
) -> None:
    """Compare what the cores of each rank did to shared tensors.

    Args:
        compiled: as it was run.
        first: the rank that core 0 of the reports is of.

    Raises:
        RaceError: for the first race; with `races="warn"` it is a RaceWarning, once for all ranks
            where it is the same.
    """
    races = "error" if compiled.races_are_errors else checks.races
    if races == "off":  # a program from a file is watched all the same
        return
    by_rank: dict[int, dict[int, Any]] = {}
    for report in result.reports:
        if report.records:
            rank, core = divmod(report.core, lnc)
            by_rank.setdefault(rank, {})[core] = report.records
    found: dict[str, list[tuple[int, RaceError]]] = {}
    for rank, records in sorted(by_rank.items()):
        try:
            check_races(compiled, records, first + rank)
        except RaceError as error:
            found.setdefault(error.message, []).append((first + rank, error))
    for equal in found.values():
        race = equal[0][1]
        if equal[1:]:
            race.message += f"; so on {named(rank for rank, _ in equal)}"
        if races == "error":
            raise race
        session().warn(as_warning(race, RaceWarning))


def check_run(world: Any, compiled: Compiled, result: LaunchResult) -> None:
    """Refuse messages that nobody took, and races.

    Args:
        world: that launched it.
        compiled: as it was run.

    Raises:
        CollectiveMismatchError: a core sent more than its partner received.
        RaceError: as of `report_races`.
    """
    if compiled.exchanges:
        check_messages(result.reports, world.lnc if world.ranks > 1 else 0)
    if compiled.watched:
        report_races(compiled, result, world.lnc, world.checks)


def findings(
    launch: Launch, result: LaunchResult, attempt: Attempt, checks: Checks
) -> Iterator[NkiError | NkiWarning]:
    """What compiling found, and what only the run could tell."""
    compiled = launch.compiled
    yield from compiled.warnings
    yield from compiled.unstored
    if compiled.undecided and not compiled.unstored:
        yield from unwritten_after(launch, result, attempt, checks)


def tell(found: Iterable[NkiError | NkiWarning]) -> None:
    """Give the warnings of a launch, of a kind of which it has several one for all; then its error.

    Raises:
        UninitializedReadError: nothing is stored in an output, or `unwritten="strict"` and it holds
            what nobody wrote.
    """
    kinds: dict[type[NkiWarning], list[NkiWarning]] = {}
    errors = []
    for one in found:
        if isinstance(one, NkiWarning):
            kinds.setdefault(type(one), []).append(one)
        else:
            errors.append(one)
    for kind, several in kinds.items():
        for warning in [_sum(several)] if kind in SUMMED and len(several) > 1 else several:
            session().warn(warning)
    for error in errors:
        raise error


def _sum(several: Sequence[NkiWarning]) -> NkiWarning:
    """One warning for all of a kind: how many there are, the first, and what lists the others."""
    first, kind = several[0], type(several[0])
    return kind(
        f"{SUMMED[kind].format(len(several))}, the first of them: {first.message}",
        location=first.location,
        core=first.core,
        instruction=first.instruction,
        hint="`nki-dist check PROGRAM` lists all.",
        numbers={"places": len(several)},
    )
