"""Launching a kernel with one set of arguments, and all that can be said without a reference.

Invariant: arrays of a launch are seen by that launch alone; what it raises is a Failure of its
trial, and never a reason to stop with the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from nki_dist import frameworks
from nki_dist.checks import Checks
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.encode import encode
from nki_dist.compiler.locations import Locations, kernel_location
from nki_dist.errors import LaunchError, NkiWarning, UnwrittenOutputWarning
from nki_dist.launcher.binding import PerRank
from nki_dist.launcher.checking import Checker, UnknownResult
from nki_dist.launcher.kernel import Kernel
from nki_dist.launcher.results import Run
from nki_dist.launcher.session import session
from nki_dist.launcher.world import World
from nki_dist.testing.arguments import Arguments, Call, arrays, merged
from nki_dist.testing.cases import Case
from nki_dist.testing.deadline import TimeOver, deadline
from nki_dist.testing.expected import Left, left
from nki_dist.testing.judge import (
    beyond,
    changed_inputs,
    hbm_bytes,
    peak,
    root,
    unlike,
)
from nki_dist.testing.report import Difference, Failure, Limits, Result

UNCHECKED: Final = "check_kernel compares values where kernels are run, and this one wasn't"
GRACE: Final = 5.0  # seconds that a world has to give up by itself, knowing more


@dataclass
class Trial:
    """One set of arguments on one number of cores, and what is known so far.

    Attributes:
        failures: what is wrong whatever the reference says.
        wrong, differences: what it says.
    """

    case: Case
    arguments: Arguments
    lnc: int
    ran: bool = False
    launched: list[Left] | None = None
    compiled: Compiled | None = None
    time_us: float | None = None
    unchecked: str | None = None
    unstored: dict[tuple[int, str | int], Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[Failure] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)

    def forget(self, everything: bool) -> None:
        """Give memory back: what the launch left, unless it is to be compared with another."""
        self.unstored = {}
        if everything:
            self.launched = None

    def _placed(self, failure: Failure) -> Failure:
        """With the line where a tensor was allocated that wasn't stored, if a warning told it."""
        for told in self.warnings:
            if failure.code == "never-stored" and told["type"] == UnwrittenOutputWarning.__name__:
                return replace(failure, file=told["file"], line=told["line"])
        return failure

    def result(self) -> Result:
        c = self.compiled
        return Result(
            str(self.case),
            self.case.data_text,
            self.lnc,
            tuple(self.failures + [self._placed(f) for f in self.wrong]),
            tuple(self.differences),
            self.time_us,
            None if c is None else peak(c, "sbuf"),
            None if c is None else peak(c, "psum"),
            None if c is None else hbm_bytes(c),
            tuple(self.warnings),
            self.case,
            self.unchecked,
        )


@dataclass
class Runner:
    """Launches one kernel; its worlds are started when needed and closed with `worlds`.

    Attributes: as of check_kernel.
    """

    kernel: Any
    ranks: int
    checks: Checks
    platform: str | None
    host: str
    timeout: float | None
    writes: tuple[str, ...]
    worlds: ExitStack = field(default_factory=ExitStack)
    _open: dict[tuple[int, Checks], World] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.kernel, Kernel) and isinstance(self.kernel.grid, int):
            self.kernel = self.kernel.but(grid=None)  # the world says how many cores

    @property
    def _first_line(self) -> str | None:
        return kernel_location(getattr(self.kernel, "fn", self.kernel))

    def world(self, lnc: int, checks: Checks) -> World:
        world = self._open.get((lnc, checks))
        if world is None:
            world = World(
                self.ranks, lnc, self.platform, self.host, timeout=self.timeout, check=checks
            )
            world = self._open[lnc, checks] = self.worlds.enter_context(world)
        return world

    def _run(self, trial: Trial, checks: Checks) -> tuple[Run, list[Call]]:
        """A launch, and the arguments as it left them."""
        world = self.world(trial.lnc, checks)
        calls = trial.arguments.fresh()
        args, kwargs = merged(calls, PerRank)
        try:
            with deadline(None if self.timeout is None else self.timeout + GRACE):
                return world.run(self.kernel, *args, profile=True, **kwargs), calls
        except TimeOver as over:
            del self._open[trial.lnc, checks]  # it was interrupted anywhere
            hint = "look at loops whose end depends on values"
            raise _took_too_long("launching", over, self._first_line, hint) from None

    def _launch(self, trial: Trial, checks: Checks) -> tuple[list[Left], float]:
        run, calls = self._run(trial, checks)
        launched = [left(*each) for each in zip(run.outputs, map(arrays, calls))]
        return launched, run.profile.total_us

    def _compile(self, trial: Trial) -> Compiled:
        world = self.world(trial.lnc, self.checks)
        args, kwargs = merged(trial.arguments.fresh(), PerRank)
        try:
            with deadline(self.timeout):
                return world.compile(self.kernel, *args, **kwargs)
        except TimeOver as over:
            line = Locations().raised(over) or self._first_line
            hint = "this line was being traced; Python loops are traced round by round"
            raise _took_too_long("tracing", over, line, hint) from None

    def attempt(self, trial: Trial, earlier: Compiled | None, limits: Limits) -> None:
        """Launch twice, in memory with different contents, and look at all but the values.

        Args:
            earlier: what other data of the case gave; None for the first.
        """
        with warnings.catch_warnings(record=True) as caught, _noting(trial):
            warnings.simplefilter("always")
            compiled = self._compile(trial)
            _demand_same_program(earlier or self._compile(trial), compiled)
            if (checker := session().checker) is not None:
                self._look(trial, compiled, limits, checker)
            else:
                launched, time_us = self._launch(trial, self.checks)
                if not self.checks.defined:
                    other, _ = self._launch(trial, replace(self.checks, unwritten="zero"))
                    trial.unstored = unlike(launched, other)
                trial.ran, trial.launched = True, launched
                trial.compiled, trial.time_us = compiled, time_us
        trial.warnings = _told(caught)
        if not trial.ran:
            return
        self._refuse_unknown_writes(compiled)
        before = [trial.arguments.arrays(rank) for rank in range(self.ranks)]
        originals = [[frameworks.to_numpy(a) for a in each] for each in before]
        trial.failures += changed_inputs(compiled, originals, launched, self.writes)
        trial.failures += beyond(limits, time_us, compiled)

    def _look(self, trial: Trial, compiled: Compiled, limits: Limits, checker: Checker) -> None:
        """A launch that is looked at: the checker keeps what is wrong, results hold no contents."""
        run, _ = self._run(trial, self.checks)
        trial.compiled, trial.unchecked = compiled, UNCHECKED
        if not isinstance(run.profile, UnknownResult):
            trial.time_us = run.profile.total_us
        trial.failures += beyond(limits, trial.time_us or 0.0, compiled)
        function = getattr(self.kernel, "fn", self.kernel)
        name = getattr(function, "__name__", type(function).__name__)
        checker.doubt(checker.entry(function, name), None, UNCHECKED)

    def repeat(self, trial: Trial) -> None:
        """The first data once more, after all other: nothing may be left of what came between."""
        assert trial.launched is not None and trial.compiled is not None
        with warnings.catch_warnings(), _noting(trial):
            warnings.simplefilter("ignore")
            _demand_same_program(trial.compiled, self._compile(trial))
            again, _ = self._launch(trial, self.checks)
            if marks := unlike(trial.launched, again):
                trial.failures.append(_unrepeatable(trial.compiled, marks))

    def _refuse_unknown_writes(self, compiled: Compiled) -> None:
        names = {root(s.name) for s in compiled.inputs}
        if unknown := sorted(set(self.writes) - names):
            raise LaunchError(
                f"writes={self.writes!r}: {', '.join(unknown)} is no argument with arrays; there "
                f"are {', '.join(sorted(names)) or 'none'}",
                code="check-option",
            )


class _Ended(Exception):
    """A launch that was given up."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@contextmanager
def _noting(trial: Trial) -> Iterator[None]:
    """What ends a launch is a failure of its trial: a kernel doesn't end its grader."""
    try:
        yield
    except _Ended as ended:
        trial.failures.append(ended.failure)
    except (Exception, SystemExit) as error:
        trial.failures.append(Failure.raised(error))


def _took_too_long(what: str, seconds: TimeOver, location: str | None, hint: str) -> _Ended:
    return _Ended(Failure("timeout", f"{what} the kernel: {seconds}", hint).at(location))


def _told(caught: Sequence[warnings.WarningMessage]) -> list[dict[str, Any]]:
    """Warnings of the simulator, each once."""
    found = {}
    for each in caught:
        if isinstance(each.message, NkiWarning):
            told = each.message.to_dict()
            found[told["message"], told["line"]] = told
    return list(found.values())


def _demand_same_program(first: Compiled, compiled: Compiled) -> None:
    """A program follows from shapes, dtypes and compile-time values, which are the same here."""
    if first is compiled or [encode(p) for p in first.programs] == [
        encode(p) for p in compiled.programs
    ]:
        return
    raise _Ended(
        Failure(
            "program-varies",
            "two traces with equal shapes, dtypes and compile-time values gave different programs",
            "a kernel must not depend on a counter, on random numbers, on the time or on the "
            "contents of arrays while it is traced",
        )
    )


def _unrepeatable(compiled: Compiled, marks: Mapping[tuple[int, str | int], Any]) -> Failure:
    _, where = next(iter(marks))
    name = f"argument {compiled.inputs[where].name}" if isinstance(where, int) else "output" + where
    count = sum(int(mask.sum()) for mask in marks.values())
    return Failure(
        "not-repeatable",
        f"{count:,} elements, the first of {name}, have other bits when the same inputs are given "
        "again after others",
        "something is left over between launches",
        numbers={"wrong": count},
    )
