"""Launches that are looked at instead of made: what `nki-dist check` puts in their place.

A kernel is traced and checked as ever and then run dry (see runtime.dry): its cores synchronise,
its loops iterate and its run-time addresses are looked at, without arithmetic. What it does wrong
is kept, and the program goes on with results that hold no contents (see launcher.hollow). Where not
even their shapes are known, it goes on with an `UnknownResult`, until it looks into that.

Not seen: what depends on computed contents, such as whether both cores of a rank store the same
bytes, and kernels that other processes launch. Both are said where they occur (`unchecked`), but
for the latter.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final

from nki_dist.checks import Checks
from nki_dist.collectives.check import check_world
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.locations import kernel_location, name_of
from nki_dist.compiler.passes.unwritten import DOUBTFUL
from nki_dist.compiler.survey import survey
from nki_dist.errors import CompileError, Diagnostic, LaunchError, NkiError, NkiWarning
from nki_dist.forks import Shared
from nki_dist.launcher.binding import Args, BoundArguments, Kwargs, collect_outputs
from nki_dist.launcher.hollow import Hollows
from nki_dist.launcher.profiles import executed
from nki_dist.launcher.results import Run
from nki_dist.launcher.session import session
from nki_dist.launcher.suggestions import did_you_mean
from nki_dist.launcher.tracebacks import raised_at
from nki_dist.program.pytree import flatten
from nki_dist.program.walk import returned
from nki_dist.runtime.hosts import forced_algorithm

PATIENCE: Final = 60.0
"""Seconds for the dry run of a launch in a world without a time-out."""

LENIENT: Final = {"unwritten": "nan", "races": "off", "capacity": "spill"}
"""What no policy refuses: with it the passes come to what else is wrong."""


class UnknownResult:
    """Stands for what a kernel returns when its mistakes hide even the shape.

    It can be kept, handed on and passed to other kernels; looking into it raises a LaunchError.
    """

    __slots__ = ("_kernel",)

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise LaunchError(
            f"the program needs the result of kernel {self._kernel}, which isn't known because of "
            "the kernel's mistakes; repair them first, what comes after here wasn't checked",
            code="result-unknown",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks for these and expects none
            raise AttributeError(name)
        return self._refuse()

    __array__ = __len__ = __iter__ = __getitem__ = __setitem__ = __bool__ = __call__ = _refuse
    __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __abs__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = _refuse
    __matmul__ = __rmatmul__ = __array_ufunc__ = __array_function__ = _refuse


@dataclass
class Checked:
    """What was found about a kernel, over all its launches.

    Attributes:
        name: of its function.
        file, line: where the function is, or None where there is no source.
        launches: how often the program launched it.
        diagnostics: errors and warnings, each once.
        unchecked: (kernel line or None, what couldn't be looked at there), each once.
    """

    name: str
    file: str | None
    line: int | None
    launches: int = 0
    diagnostics: list[Diagnostic] = field(default_factory=list)
    unchecked: list[tuple[str | None, str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no error was found; warnings don't count."""
        return all(isinstance(d, NkiWarning) for d in self.diagnostics)


class Checker(Shared):
    """Takes the place of launches (`Session.checker`); for any number of threads."""

    def __init__(self) -> None:
        super().__init__()
        self._kernels: dict[Any, Checked] = {}
        self._seen: set[Any] = set()
        self.hollows = Hollows()

    def kernels(self) -> list[Checked]:
        """What was found, in the order of the first launches."""
        with self._lock:
            return list(self._kernels.values())

    def reported(self, error: BaseException) -> bool:
        """Whether an exception is one of the diagnostics."""
        return any(error is d for kernel in self.kernels() for d in kernel.diagnostics)

    # ---- what World calls -------------------------------------------------------------------

    def launch(self, world: Any, kernel: Any, grid: Any, args: Args, kwargs: Kwargs) -> Look:
        """Look at a launch."""
        look = Look(self, world, kernel)
        with self._lock:
            look.entry.launches += 1
        look.at(grid, args, kwargs)
        return look

    def refused(self, kernel: Any, error: NkiError) -> UnknownResult:
        """A launch that came to no world."""
        look = Look(self, None, kernel)
        with self._lock:
            look.entry.launches += 1
        look.note(error)
        return UnknownResult(look.name)

    def compile(self, world: Any, kernel: Any, args: Args, kwargs: Kwargs) -> Compiled:
        """A program that compiles a kernel itself gets its exceptions."""
        look = Look(self, world, kernel)
        try:
            found: Compiled = world._compiled(kernel, None, args, kwargs)[2]
            return found
        except Exception as error:
            look.note(error)
            raise

    # ---- what looks call --------------------------------------------------------------------

    def entry(self, function: Any, name: str) -> Checked:
        """The entry of a kernel."""
        plain = inspect.unwrap(function) if callable(function) else function
        code = getattr(plain, "__code__", None)
        key = code or (name, function.key if isinstance(function, Compiled) else id(function))
        with self._lock:
            if key not in self._kernels:
                file = code.co_filename if code else None
                self._kernels[key] = Checked(name, file, _line(code))
            return self._kernels[key]

    def keep(self, kernel: Checked, found: Diagnostic) -> None:
        """Keep a diagnostic, unless the same was found on another core or in another launch."""
        key = (id(kernel), found.code, found.location or found.message, found.instruction)
        with self._lock:
            if key not in self._seen:
                self._seen.add(key)
                kernel.diagnostics.append(found)

    def doubt(self, kernel: Checked, location: str | None, why: str) -> None:
        """Keep that something wasn't checked."""
        with self._lock:
            if (location, why) not in kernel.unchecked:
                kernel.unchecked.append((location, why))


class Look:
    """One launch that is looked at.

    Attributes:
        name: of the kernel.
        entry: where what is found is kept.
        outputs: what the kernel returns to each rank.
    """

    def __init__(self, checker: Checker, world: Any, kernel: Any) -> None:
        self._checker = checker
        self._world = world
        self._function = getattr(kernel, "fn", kernel)
        self._kernel = kernel
        compiled = isinstance(kernel, Compiled)
        self.name: str = kernel.kernel if compiled else name_of(self._function)
        self.entry = checker.entry(self._function, self.name)
        self._compiled: Compiled | None = None
        self._reports: list[Any] = []
        self.outputs: list[Any] = []

    def at(self, grid: Any, args: Args, kwargs: Kwargs) -> None:
        """Find what is wrong with a launch, and what it returns."""
        unknown = UnknownResult(self.name)
        self.outputs = [unknown] * self._world.ranks
        given, _ = flatten((args, kwargs), lambda value: isinstance(value, UnknownResult))
        if any(isinstance(leaf, UnknownResult) for _, leaf in given):
            why = "an argument is the result of a kernel with mistakes, of unknown shape"
            self._checker.doubt(self.entry, None, why)
            return
        compiled: Compiled | None
        try:
            if isinstance(self._kernel, Compiled):  # nothing is left to trace or to survey
                bound, _, compiled = self._world._compiled(self._kernel, grid, args, kwargs)
            else:
                doubts = self._checker.hollows.unknown
                bound, grid = self._world._bound(self._kernel, grid, args, kwargs, doubts)
                compiled = self._compile(bound, grid)
        except Exception as error:
            self.note(error)
            return
        if compiled is None:
            return
        for warning in compiled.warnings:
            self._checker.keep(self.entry, warning)
        self._run_dry(compiled, bound)
        self._return(compiled, bound)

    def note(self, error: Exception) -> None:
        """Keep an error; a kernel's own exception, too."""
        if not isinstance(error, NkiError):
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            where, meant = raised_at(error), did_you_mean(error)
            error = CompileError(text, location=where, code="kernel-raised", hint=meant)
        place = kernel_location(self._function) if callable(self._function) else None
        self._checker.keep(self.entry, error.at(location=place))

    def launched(self) -> tuple[Compiled, list[Any]] | None:
        """The kernel and the cores' reports, if its dry run came to the end."""
        return (self._compiled, self._reports) if self._compiled and self._reports else None

    def run(self, outputs: Any, schedule: str) -> Run:
        """The Run that the program gets: with simulated time where there are no mistakes."""
        if (launched := self.launched()) is None:
            return Run(outputs, UnknownResult(self.name), [])
        profile = executed(self._world, forced_algorithm(), *launched).profile(schedule)
        return Run(outputs, profile, self._reports)

    # ---- steps ------------------------------------------------------------------------------

    def _compile(self, bound: Sequence[BoundArguments], grid: Any) -> Compiled | None:
        world = self._world
        try:
            return self._cached(bound[0], grid, world.checks)
        except Exception as error:
            self.note(error)
            if not isinstance(error, NkiError):
                return None
        first = bound[0]
        found = survey(
            self._function,
            self.name,
            world.arch,
            grid,
            first.bind,
            collect_outputs(self._function),
            world.checks,
        )
        for refusal in found.errors:
            self.note(refusal)
        if not found.complete:
            return None
        if not found.errors:  # it was a pass that refused the kernel
            try:
                return self._cached(first, grid, replace(world.checks, **LENIENT))
            except Exception as error:
                self.note(error)
        known = {"outputs": found.outputs, "written_inputs": sorted(found.written)}
        self._return(SimpleNamespace(kernel=self.name, **known), bound)
        return None

    def _cached(self, bound: BoundArguments, grid: Any, checks: Checks) -> Compiled:
        cache = session().cache
        return cache.get(self._function, bound, self._world.arch, grid, checks)[1]

    def _run_dry(self, compiled: Compiled, bound: Sequence[BoundArguments]) -> None:
        world = self._world
        self._compiled = compiled
        unknown = self._checker.hollows.unknown(bound)
        limit = PATIENCE if world.timeout is None else world.timeout
        try:
            check_world(compiled.programs, world.topology, world.checks.strict)
            report, self._reports = world.run_dry(compiled, bound, unknown, limit)
        except NkiError as error:
            if error.code == "spec-contents":  # our own placeholder, no mistake of anybody
                why = "how often a loop goes round depends on results that weren't computed"
                self._checker.doubt(self.entry, error.location, why)
            elif error.code == "timeout" and world.timeout is None:  # slow is no mistake
                why = f"what comes after {PATIENCE:g} s (NKI_DIST_TIMEOUT sets another limit)"
                self._checker.doubt(self.entry, error.location, why)
            else:
                self.note(error)
            return
        for unstored in compiled.unstored:
            self.note(unstored)
        doubtful = compiled.programs[0].facts.get(DOUBTFUL, ())
        for path, place in returned(compiled.outputs):
            if place.storage.number not in doubtful:
                continue
            line = compiled.programs[0].where(place.storage.location)
            why = f"only a run tells whether every element of output{path} is stored"
            self._checker.doubt(self.entry, line, why)
        for line in report.unchecked:
            self._checker.doubt(self.entry, line, "a run-time address depends on contents")
        for lines, how in ((report.overlaps, "touch"), (report.may_overlap, "may touch")):
            for line in lines if world.checks.races != "off" else ():
                why = f"both cores of a rank {how} the same bytes in no order; "
                self._checker.doubt(self.entry, line, why + "a run tells if it's a race")

    def _return(self, compiled: Any, bound: Sequence[BoundArguments]) -> None:
        hollows = self._checker.hollows
        try:
            for b in {id(b): b for b in bound}.values():
                hollows.changed(compiled, b)
            self.outputs = [hollows.results(compiled, b) for b in bound]
        except NkiError as error:  # an argument or framework that can't take the result back
            self.note(error)


def _line(code: Any) -> int | None:
    """The line of `def`, below the decorators."""
    if code is None:
        return None
    first: int = code.co_firstlineno
    lines = linecache.getlines(code.co_filename)[first - 1 :]
    found = (n for n, text in enumerate(lines) if f"def {code.co_name}(" in text)
    return first + next(found, 0)
