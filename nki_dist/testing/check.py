"""`check_kernel`: a kernel against a reference, and against the ways in which kernels go wrong.

How one set of arguments is tried on one number of cores:

1. The kernel is compiled and launched with fresh copies, and what the simulator finds (races,
   deadlocks, reads of unwritten memory) counts. Outputs are poisoned before every launch.
2. It is launched again in memory that was zero instead. What differs wasn't stored.
3. Inputs are compared with what they were; time and memory with the limits.
4. The reference is called, after the kernel and with arrays of its own, and the results compared.
5. When all data of a case has been tried, the first is launched once more: same bits, same program.

Invariant: a kernel never sees an array that it, or the reference, has seen before.

Where launches are only looked at (`nki-dist check`), nothing is computed: a case is launched once
with each of its data and judged by what doesn't depend on values, and its result is `unchecked`.

This isn't a sandbox. A kernel is Python and runs in this process while it is traced; one that means
harm, to the process or to the verdict, must run in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nki_dist import arch as architectures
from nki_dist.checks import Checks, Policy, checks_of
from nki_dist.errors import LaunchError
from nki_dist.launcher.grid import make_grid
from nki_dist.runtime.settings import default_check, default_lnc
from nki_dist.testing.arguments import Arguments
from nki_dist.testing.cases import DATA, DISTRIBUTIONS, Case, Data, as_case
from nki_dist.testing.compare import Tolerance
from nki_dist.testing.expected import Expected
from nki_dist.testing.judge import Judge
from nki_dist.testing.report import Limits, Report, Result
from nki_dist.testing.trial import Runner, Trial


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
        check: what the simulator holds the kernel to, as of World; that of nki.simulate, or of the
            environment, by default. Under `unwritten=zero` or
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
    runner = Runner(
        kernel,
        ranks,
        _checks(kernel, check),
        getattr(kernel, "platform", None) if platform is None else platform,
        host,
        timeout,
        tuple(writes),
    )
    grader = _Grader(
        runner,
        reference,
        Tolerance(rtol, atol),
        limits or Limits(),
        list(seeds),
        list(data),
        output_dtypes,
        upcast,
    )
    with runner.worlds:
        report = grader.report(_cases(cases), _core_counts(kernel, lnc, runner.platform))
    if raises:
        report.raise_if_failed()
    return report


def _cases(cases: Any) -> list[Case]:
    one = isinstance(cases, (Case, dict))
    if isinstance(cases, tuple):  # arguments of one case, unless it holds nothing but cases
        one = not all(isinstance(c, (Case, dict, tuple)) for c in cases)
    found = [as_case(c) for c in ([cases] if one else cases)]
    if not found:
        raise LaunchError("no cases to check the kernel with", code="check-case")
    return found


def _checks(kernel: Any, check: Policy | None) -> Checks:
    if check is not None:
        return checks_of(check)
    checks: Checks | None = getattr(kernel, "checks", None)  # of nki.simulate(kernel, check=...)
    return checks or default_check()


def _core_counts(kernel: Any, lnc: Any, platform: str | None) -> list[int]:
    arch = architectures.from_environment() if platform is None else architectures.get(platform)
    grid = getattr(kernel, "grid", None)
    if lnc is None:
        return [make_grid(grid, arch, default_lnc(arch.max_lnc)).cores]
    if grid is not None and not isinstance(grid, int):
        raise LaunchError(
            f"lnc={lnc!r}, and the kernel has the grid {grid}; leave lnc out", code="check-option"
        )
    counts = [lnc] if isinstance(lnc, int) else list(lnc)
    if not counts:
        raise LaunchError("lnc=(): no number of cores to try", code="check-option")
    return counts


@dataclass
class _Grader:
    """Tries one kernel with all cases; fields as the arguments of check_kernel."""

    runner: Runner
    reference: Callable[..., Any]
    tolerance: Tolerance
    limits: Limits
    seeds: list[int]
    data: list[Data]
    output_dtypes: Any
    upcast: bool

    def __post_init__(self) -> None:
        if not callable(self.reference):
            raise LaunchError(
                f"a reference is a function, got {self.reference!r}", code="check-reference"
            )
        if not self.seeds or not self.data:
            raise LaunchError(
                "seeds and data must have at least one entry each", code="check-option"
            )
        for each in self.data:
            if not callable(each) and each not in DISTRIBUTIONS:
                raise LaunchError(
                    f"data={each!r}; allowed: {', '.join(DISTRIBUTIONS)}", code="check-case"
                )

    def report(self, cases: Sequence[Case], counts: Sequence[int]) -> Report:
        for lnc in counts:  # what can't be asked for is no kernel's fault
            self.runner.world(lnc, self.runner.checks)
        results = [result for case in cases for result in self._case(case, counts)]
        function = getattr(self.runner.kernel, "fn", self.runner.kernel)
        name = getattr(function, "__name__", type(function).__name__)
        arch = self.runner.world(counts[0], self.runner.checks).arch
        return Report(name, arch.instance, tuple(results))

    def _case(self, case: Case, counts: Sequence[int]) -> list[Result]:
        trials: list[Trial] = []
        first: dict[int, Trial] = {}
        for variant in case.variants(self.seeds, self.data):
            arguments = Arguments(variant, self.runner.ranks)
            tried = []
            for lnc in counts:
                if lnc in first and not (first[lnc].ran or first[lnc].unchecked):
                    continue  # whatever the data, it would raise again
                trial = Trial(variant, arguments, lnc)
                compiled = first.setdefault(lnc, trial).compiled
                self.runner.attempt(trial, compiled, variant.limits or self.limits)
                tried.append(trial)
            # After all launches: what a kernel takes from the reference's last call is old.
            self._judge(arguments, variant, [t for t in tried if t.ran])
            for trial in tried:
                trial.forget(everything=trial is not first[trial.lnc])
            trials += tried
        for trial in first.values():
            if trial.ran:
                self.runner.repeat(trial)
        return [trial.result() for trial in trials]

    def _judge(self, arguments: Arguments, case: Case, trials: Sequence[Trial]) -> None:
        if not trials:
            return
        told = f"{case} {case.data_text}".strip()
        expected = Expected(self.reference, arguments, self.upcast, told)
        tolerance = Tolerance(case.rtol, case.atol)
        for trial in trials:
            assert trial.compiled is not None and trial.launched is not None
            trial.wrong, trial.differences = Judge(
                expected,
                self.output_dtypes,
                tolerance if tolerance.given else self.tolerance,
                trial.compiled,
                self.runner.writes,
                trial.launched,
                trial.unstored,
            ).judge()
        _compare_core_counts(trials)


def _compare_core_counts(trials: Sequence[Trial]) -> None:
    """Say so when the same arguments are right on another number of cores."""
    right = [t.lnc for t in trials if not t.wrong]
    for trial in trials:
        if right and trial.wrong:
            cores = " and ".join(map(str, right))
            told = (
                f"on {cores} core{'s' if right != [1] else ''} the same arguments are right; look "
                "at what depends on nl.program_id and nl.num_programs, and at what cores share"
            )
            trial.wrong = [
                replace(f, hint=f"{f.hint}; {told}" if f.hint else told) for f in trial.wrong
            ]
