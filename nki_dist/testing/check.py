"""`check_kernel`: a kernel against a reference, and against the ways in which kernels go wrong.

How one set of arguments is tried on one number of cores:

1. The kernel is compiled and launched with fresh copies, and what the simulator finds (races,
   deadlocks, reads of unwritten memory) counts. Outputs are poisoned before every launch.
2. It is launched again in memory that was zero instead. What differs wasn't stored.
3. Inputs are compared with what they were; time and memory with the limits.
4. The reference is called, after the kernel and with arrays of its own, and the results compared.
5. When all data of a case has been tried, the first is launched once more: same bits, same program.

Invariant: a kernel never sees an array that it, or the reference, has seen before.

This isn't a sandbox. A kernel is Python and runs in this process while it is traced; one that means
harm, to the process or to the verdict, must run in a process of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from nki_dist import arch as architectures
from nki_dist import dtypes, frameworks
from nki_dist.checks import Checks, Policy, checks_of
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.encode import encode
from nki_dist.errors import LaunchError, NkiWarning
from nki_dist.launcher.binding import kernel_location
from nki_dist.launcher.grid import make_grid
from nki_dist.launcher.kernel import Kernel
from nki_dist.launcher.world import World
from nki_dist.runtime.settings import default_check, default_lnc
from nki_dist.testing.arguments import Arguments, arrays, for_world
from nki_dist.testing.cases import DATA, DISTRIBUTIONS, Case, Data, as_case
from nki_dist.testing.compare import Tolerance
from nki_dist.testing.deadline import TimeOver, deadline
from nki_dist.testing.expected import Expected, leaves
from nki_dist.testing.judge import (
    Judge,
    Launched,
    Verdict,
    beyond,
    changed_inputs,
    hbm_bytes,
    peak,
    root,
    unlike,
)
from nki_dist.testing.report import Failure, Limits, Report, Result

_GRACE = 5.0  # seconds that a world has to give up by itself, knowing more


def check_kernel(
    kernel: Any,
    reference: Callable[..., Any],
    cases: Any,
    *,
    seeds: Iterable[int] = (0, 1),
    data: Iterable[Data] = DATA,
    lnc: int | Sequence[int] | None = None,
    ranks: int = 1,
    writes: Sequence[str] = (),
    output_dtypes: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    limits: Limits | None = None,
    upcast: bool = True,
    check: Policy | None = None,
    platform: str | None = None,
    host: str = "inprocess",
    timeout: float | None = 60.0,
    raises: bool = True,
) -> Report:
    """Try a kernel with many arguments, and compare it with a reference.

    Args:
        kernel: an `nki.jit` kernel, of today's language or Beta 1's, or a plain function.
        reference: called with the same arguments: NumPy arrays, floats as float64. Returns what the
            kernel should: arrays, in tuples, lists or dicts; elements that are masked
            (`numpy.ma`) aren't judged. Arguments without arrays that it has no parameter for are
            left out. It changes its copies of what the kernel is to write. With several `ranks`,
            arguments that hold arrays are lists with one entry per rank, and so is the result.
        cases: Cases, tuples of arguments, or dicts of arguments by name; one or a list.
        seeds, data: made data is tried with each seed and distribution that a case leaves open.
        lnc: how many cores per rank: 1, 2, or (1, 2) to try both; the kernel's own grid, or
            NEURON_LOGICAL_NC_CONFIG, by default.
        ranks: of the world.
        writes: parameters that the kernel updates in place; compared like outputs. All other inputs
            must stay as they are.
        output_dtypes: of the outputs: one, or a list with one each. By default what the reference
            returns; where that is float64, those of the float inputs, where it is int64, any
            integers.
        rtol, atol: allow `atol + rtol * |reference|` instead of the rule for the dtype
            (nki_dist/testing/compare.py; integers must be equal).
        limits: of time and memory.
        upcast: False to call the reference with copies of the arrays as they are.
        check: what the simulator holds the kernel to, as of World. Under `unwritten=zero` or
            `nan`, memory has contents that kernels may use, so that they aren't compared.
        platform, host: as of World; the kernel's platform by default, and this process.
        timeout: seconds for tracing a kernel, and for a launch without progress.
        raises: False to get the report of a wrong kernel.

    Returns:
        A Report with a Result for each set of arguments and number of cores. After an exception the
        case isn't tried with other data.

    Raises:
        CheckFailed: something is wrong; an AssertionError with the report.
        LaunchError: the arguments can't be used, or the reference raised or can't be compared.
    """
    __tracebackhide__ = True
    kernel = getattr(kernel, "kernel", kernel)  # what nki.cpu_simulate makes
    grader = _Grader(
        kernel,
        reference,
        Tolerance(rtol, atol),
        limits or Limits(),
        list(seeds),
        list(data),
        ranks,
        tuple(writes),
        output_dtypes,
        upcast,
        default_check() if check is None else checks_of(check),
        getattr(kernel, "platform", None) if platform is None else platform,
        host,
        timeout,
    )
    with grader.worlds:
        report = grader.report(_cases(cases), _core_counts(kernel, lnc, grader.platform))
    if raises:
        report.raise_if_failed()
    return report


def _cases(cases: Any) -> list[Case]:
    one = isinstance(cases, (Case, dict)) or (isinstance(cases, tuple) and bool(arrays(cases)))
    # A tuple of Cases or of dicts is a list of them; one of arrays is the arguments of one case.
    found = [as_case(c) for c in ([cases] if one and not _listed(cases) else cases)]
    if not found:
        raise LaunchError("no cases to check the kernel with")
    return found


def _listed(cases: Any) -> bool:
    return isinstance(cases, tuple) and all(isinstance(c, (Case, dict, tuple)) for c in cases)


def _core_counts(kernel: Any, lnc: Any, platform: str | None) -> list[int]:
    arch = architectures.from_environment() if platform is None else architectures.get(platform)
    grid = getattr(kernel, "grid", None)
    if lnc is None:
        return [make_grid(grid, arch, default_lnc(arch.max_lnc)).cores]
    if grid is not None and not isinstance(grid, int):
        raise LaunchError(f"lnc={lnc!r}, and the kernel has the grid {grid}; leave lnc out")
    counts = [lnc] if isinstance(lnc, int) else list(lnc)
    if not counts:
        raise LaunchError("lnc=(): no number of cores to try")
    return counts


@dataclass
class _Trial:
    """One set of arguments on one number of cores, and what is known so far."""

    case: Case
    arguments: Arguments
    lnc: int
    launched: Launched | None = None
    compiled: Compiled | None = None
    time_us: float | None = None
    unstored: dict[tuple[int, str | int], Any] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)

    def result(self) -> Result:
        c = self.compiled
        return Result(
            str(self.case),
            self.case.data_text,
            self.lnc,
            tuple(self.failures + self.verdict.failures),
            tuple(self.verdict.differences),
            self.time_us,
            None if c is None else peak(c, "sbuf"),
            None if c is None else peak(c, "psum"),
            None if c is None else hbm_bytes(c),
            tuple(self.warnings),
            self.case,
        )


@dataclass
class _Grader:
    """Tries one kernel; its worlds are started when needed and closed at the end."""

    kernel: Any
    reference: Callable[..., Any]
    tolerance: Tolerance
    limits: Limits
    seeds: list[int]
    data: list[Data]
    ranks: int
    writes: tuple[str, ...]
    output_dtypes: Any
    upcast: bool
    checks: Checks
    platform: str | None
    host: str
    timeout: float | None
    worlds: ExitStack = field(default_factory=ExitStack)
    _open: dict[tuple[int, Checks], World] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.reference):
            raise LaunchError(f"a reference is a function, got {self.reference!r}")
        if not self.seeds or not self.data:
            raise LaunchError("seeds and data must have at least one entry each")
        for each in self.data:
            if not callable(each) and each not in DISTRIBUTIONS:
                raise LaunchError(f"data={each!r}; allowed: {', '.join(DISTRIBUTIONS)}")

    def report(self, cases: Sequence[Case], counts: Sequence[int]) -> Report:
        results: list[Result] = []
        for case in cases:
            results += self._case(case, counts)
        function = getattr(self.kernel, "fn", self.kernel)
        name = getattr(function, "__name__", type(function).__name__)
        return Report(name, self._world(counts[0], self.checks).arch.instance, tuple(results))

    def _case(self, case: Case, counts: Sequence[int]) -> list[Result]:
        trials: list[_Trial] = []
        first: dict[int, _Trial] = {}
        for variant in case.variants(self.seeds, self.data):
            arguments = Arguments(variant, self.ranks)
            tried = []
            for lnc in counts:
                if lnc in first and first[lnc].launched is None:
                    continue  # whatever the data, it would raise again
                trial = _Trial(variant, arguments, lnc)
                first.setdefault(lnc, trial)
                self._try(trial, first[lnc])
                tried.append(trial)
            # After all launches: what a kernel takes from the reference's last call is old.
            self._judge(arguments, variant, [t for t in tried if t.launched is not None])
            trials += tried
        for trial in first.values():
            if trial.launched is not None:
                self._repeat(trial)
        return [trial.result() for trial in trials]

    # ---- launches -------------------------------------------------------------------------------

    def _world(self, lnc: int, checks: Checks) -> World:
        world = self._open.get((lnc, checks))
        if world is None:
            made = World(
                self.ranks, lnc, self.platform, self.host, timeout=self.timeout, check=checks
            )
            world = self._open[lnc, checks] = self.worlds.enter_context(made)
        return world

    def _launch(self, trial: _Trial, checks: Checks) -> tuple[Launched, Compiled, float]:
        world = self._world(trial.lnc, checks)
        kernel = self.kernel
        if isinstance(kernel, Kernel) and isinstance(kernel.grid, int):
            kernel = kernel.but(grid=None)  # the world says how many cores
        args, kwargs = for_world(trial.arguments.fresh())
        compiled = self._compile(world, kernel, args, kwargs)
        calls = trial.arguments.fresh()
        args, kwargs = for_world(calls)
        try:
            with deadline(None if self.timeout is None else self.timeout + _GRACE):
                run = world.run(kernel, *args, profile=True, **kwargs)
        except TimeOver as over:
            del self._open[trial.lnc, checks]  # it was interrupted anywhere
            raise _traced_too_long(over, kernel) from None
        outputs = [_as_numpy(leaves(output)) for output in run.outputs]
        inputs = [[frameworks.to_numpy(a) for a in arrays(call)] for call in calls]
        return Launched(outputs, inputs), compiled, run.profile.total_us

    def _compile(self, world: World, kernel: Any, args: Any, kwargs: Any) -> Compiled:
        """Compile it, twice if it can't be cached: the programs must be the same."""
        try:
            with deadline(self.timeout):
                compiled = world.compile(kernel, *args, **kwargs)
                again = world.compile(kernel, *args, **kwargs)
        except TimeOver as over:
            raise _traced_too_long(over, kernel) from None
        if failures := _same_program(compiled, again):
            raise _Ended(failures[0])
        return compiled

    def _try(self, trial: _Trial, first: _Trial) -> None:
        """Launch twice, in memory with different contents, and look at all but the values."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                launched, compiled, time_us = self._launch(trial, self.checks)
                if not self.checks.defined:
                    zeroed = replace(self.checks, unwritten="zero")
                    other, _, _ = self._launch(trial, zeroed)
                    marks = unlike(launched, other)
                    trial.unstored = {(rank, where): mask for rank, where, mask in marks}
            except _Ended as ended:
                trial.failures.append(ended.failure)
                return
            except Exception as error:
                trial.failures.append(Failure.raised(error))
                return
            finally:
                trial.warnings = _told(caught)
        trial.launched, trial.compiled, trial.time_us = launched, compiled, time_us
        self._refuse_unknown_writes(compiled)
        before = [trial.arguments.arrays(rank) for rank in range(self.ranks)]
        known = [[frameworks.to_numpy(a) for a in mine] for mine in before]
        trial.failures += changed_inputs(compiled, known, launched, self.writes)
        trial.failures += beyond(
            trial.case.limits or self.limits,
            time_us,
            peak(compiled, "sbuf"),
            peak(compiled, "psum"),
            hbm_bytes(compiled),
        )
        trial.failures += _same_program(first.compiled, compiled)

    def _repeat(self, trial: _Trial) -> None:
        """The first data once more, after all other: nothing may be left of what came between."""
        assert trial.launched is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                again, compiled, _ = self._launch(trial, self.checks)
            except _Ended as ended:
                trial.failures.append(ended.failure)
                return
            except Exception as error:
                trial.failures.append(Failure.raised(error))
                return
        if not (varies := _same_program(trial.compiled, compiled)):
            marks = unlike(trial.launched, again)
            varies = [_unrepeatable(trial, marks)] if marks else []
        known = {failure.code for failure in trial.failures}
        trial.failures += [failure for failure in varies if failure.code not in known]

    # ---- values ---------------------------------------------------------------------------------

    def _judge(self, arguments: Arguments, case: Case, trials: Sequence[_Trial]) -> None:
        if not trials:
            return
        told = f"{case} {case.data_text}".strip()
        expected = Expected(self.reference, arguments, self.upcast, told)
        own = Tolerance(case.rtol, case.atol)
        where = [f" of rank {rank}" if self.ranks > 1 else "" for rank in range(self.ranks)]
        for trial in trials:
            assert trial.compiled is not None and trial.launched is not None
            judge = Judge(
                expected,
                self.output_dtypes,
                own if own.given else self.tolerance,
                [s.dtype for s in trial.compiled.inputs if s.dtype.is_float],
                trial.compiled,
                self.writes,
            )
            trial.verdict = judge.judge(trial.launched, trial.unstored, where)
        _compare_core_counts(trials)

    def _refuse_unknown_writes(self, compiled: Compiled) -> None:
        known = {root(s.name) for s in compiled.inputs}
        if unknown := sorted(set(self.writes) - known):
            raise LaunchError(
                f"writes={self.writes!r}: {', '.join(unknown)} is no argument with arrays; there "
                f"are {', '.join(sorted(known)) or 'none'}"
            )


class _Ended(Exception):
    """A launch that was given up."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _traced_too_long(over: TimeOver, kernel: Any) -> _Ended:
    place = Failure.raised(over)
    first = kernel_location(getattr(kernel, "fn", kernel)) or ""
    file, _, line = first.rpartition(":")
    return _Ended(
        Failure(
            "timeout",
            f"tracing or running the kernel was {over}",
            "the line is where it was then; a Python loop in a kernel is traced round by round",
            "TimeOver",
            place.file or file or None,
            place.line or (int(line) if line else None),
        )
    )


def _as_numpy(outputs: dict[str, Any]) -> dict[str, Any]:
    return {p: None if a is None else frameworks.to_numpy(a) for p, a in outputs.items()}


def _told(caught: Sequence[warnings.WarningMessage]) -> list[dict[str, Any]]:
    """Warnings of the simulator, each once."""
    found = {}
    for each in caught:
        if isinstance(each.message, NkiWarning):
            told = Failure.raised(each.message).to_dict()
            found[told["message"], told["line"]] = told
    return list(found.values())


def _same_program(first: Compiled | None, compiled: Compiled) -> list[Failure]:
    """A program follows from shapes, dtypes and compile-time values, which are the same here."""
    if first is None or first is compiled:
        return []
    mine, other = ([encode(p) for p in c.programs] for c in (first, compiled))
    if mine == other:
        return []
    return [
        Failure(
            "program-varies",
            "two traces with equal shapes, dtypes and compile-time values gave different programs",
            "a kernel must not depend on a counter, on random numbers, on the time or on the "
            "contents of arrays while it is traced",
        )
    ]


def _unrepeatable(trial: _Trial, marks: Sequence[tuple[int, str | int, Any]]) -> Failure:
    assert trial.compiled is not None
    _, where, mask = marks[0]
    names = trial.compiled.inputs
    name = f"output{where}" if isinstance(where, str) else f"argument {names[where].name}"
    count = sum(int(mask.sum()) for _, _, mask in marks)
    return Failure(
        "not-repeatable",
        f"{count:,} elements, the first of {name}, have other bits when the same inputs are given "
        "again after others",
        "something is left over between launches",
        numbers={"wrong": count},
    )


def _compare_core_counts(trials: Sequence[_Trial]) -> None:
    """Say so when the same arguments are right on another number of cores."""
    right = [t.lnc for t in trials if not t.verdict.failures]
    for trial in trials:
        if right and trial.verdict.failures:
            cores = " and ".join(map(str, right))
            told = f"on {cores} core{'s' if right != [1] else ''} the same arguments are right; look at "
            told += "what depends on nl.program_id and nl.num_programs, and at what cores share"
            trial.verdict.failures = [
                replace(f, hint=f"{f.hint}; {told}" if f.hint else told)
                for f in trial.verdict.failures
            ]
