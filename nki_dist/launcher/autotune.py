"""`nki.autotune`: of several compile-time arguments, those with the least simulated time.

Before a launch, every configuration is compiled and estimated (see launcher.estimates); nothing is
run. What was chosen is remembered for everything that shapes the programs: code, shapes, dtypes,
compile-time values, platform and world; `key` may say that less matters. Where it can't be shown
that a kernel is the same as before, it is tuned again, as it is traced again.

Not part of it: contents. If how often loops iterate depends on them, the first launch decides.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nki_dist.compiler.compiled import Grid
from nki_dist.compiler.locations import kernel_location, name_of, users_line
from nki_dist.errors import CompileError, Diagnostic, LaunchError, RefusedConfigWarning
from nki_dist.forks import Shared
from nki_dist.launcher.binding import Args, BoundArguments, Kwargs
from nki_dist.launcher.deferred import bind_ranks
from nki_dist.launcher.estimates import Doubts, reports_of
from nki_dist.launcher.kernel import Kernel
from nki_dist.launcher.profiles import executed
from nki_dist.launcher.session import session
from nki_dist.launcher.tracebacks import leaves_package, raised_at
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing.band import groups

CACHED: Final = 256  # signatures whose choice is remembered, per kernel

Config = dict[str, Any]
Times = tuple[float, float, float]  # device_us, low_us, high_us


@dataclass(frozen=True)
class ConfigTime:
    """What a configuration would take.

    Attributes:
        config: the compile-time arguments.
        device_us, low_us, high_us: as of its Profile.
        group: from 1 on; within a group, times are too near to each other for their order to mean
            anything: measure the first.
    """

    config: Config
    device_us: float
    low_us: float
    high_us: float
    group: int


@dataclass(frozen=True)
class ConfigFailure:
    """A configuration that doesn't compile.

    Attributes:
        config: the compile-time arguments.
        error: what compiling it raised, without its traceback; an exception of the kernel's own,
            too.
        location: `"file.py:12"` of the kernel line, if it is known.
    """

    config: Config
    error: Exception
    location: str | None

    def __str__(self) -> str:
        error = self.error
        text = error.message if isinstance(error, Diagnostic) else str(error)
        first = text.strip().partition("\n")[0]
        where = f" at {self.location}" if self.location else ""
        code = f" [{error.code}]" if isinstance(error, Diagnostic) else ""
        return f"{named(self.config)}: {type(error).__name__}: {first}{where}{code}"


@dataclass(frozen=True)
class Tuning:
    """What was found for one signature.

    Attributes:
        best: the configuration with the least `device_us`; the first of those that are equal.
        timings: of those that compile, the fastest first.
        failures: those that don't, in the order given.
    """

    best: Config
    timings: list[ConfigTime]
    failures: list[ConfigFailure]


def named(config: Config) -> str:
    """A configuration as it would be written in a call."""
    return ", ".join(f"{name}={value!r}" for name, value in config.items()) or "no arguments"


class Tuner(Shared):
    """Chooses configurations of one kernel; for any number of threads, which tune independently.

    Args:
        configs: the compile-time arguments to choose from.
        key: parameters on which the choice depends; None for all.

    Attributes:
        last: what the last launch was made with, or None before the first.
    """

    def __init__(self, configs: Sequence[Config], key: Sequence[str] | None) -> None:
        self.configs = tuple(configs)
        self.key = None if key is None else tuple(key)
        self.last: Tuning | None = None
        super().__init__()
        self._cache: OrderedDict[Any, Tuning] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """Without what was found: that holds for this process's platform and settings."""
        return Tuner, (self.configs, self.key)

    def fitted(
        self,
        world: Any,
        function: Callable[..., Any],
        grid: Grid,
        args: Args,
        kwargs: Kwargs,
        doubts: Doubts,
    ) -> Kwargs:
        """The keyword arguments of a launch, with those of the best configuration.

        Raises:
            LaunchError: the call gives an argument that is to be chosen, or doesn't fit the kernel.
            CompileError: no configuration compiles; says why, for each.
        """
        self._refuse_given(function, args, kwargs)
        cache: dict[str, Times] = {}  # by what is executed

        def bound(config: Config) -> list[BoundArguments]:
            return bind_ranks(function, args, {**kwargs, **config}, world.ranks)

        def estimate(config: Config) -> Times:
            return _estimate(world, function, grid, bound(config), doubts, cache)

        key = self._key(world, function, grid, bound(self.configs[0])[0])
        with self._lock:
            tuning = self._cache.get(key) if key is not None else None
        if tuning is None:
            tuning = self._tuned(function, estimate)
        with self._lock:
            self.last = tuning
            if key is not None:
                self._cache[key] = tuning
                self._cache.move_to_end(key)
                while len(self._cache) > CACHED:
                    self._cache.popitem(last=False)
        return {**kwargs, **tuning.best}

    def _refuse_given(self, function: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
        try:
            given = inspect.signature(function).bind_partial(*args, **kwargs).arguments
        except TypeError:  # binding says what is wrong
            return
        chosen = {name for config in self.configs for name in config}
        both = sorted(chosen & {*given, *kwargs})
        if both:
            raise LaunchError(
                f"{name_of(function)}() is given {', '.join(both)}, which nki.autotune chooses; "
                "leave it out, or call the kernel that isn't tuned",
                location=users_line(),
                code="autotune-config",
            )

    def _key(
        self, world: Any, function: Callable[..., Any], grid: Grid, bound: BoundArguments
    ) -> Any:
        """What the choice depends on; None if it can't be told."""
        values: Any = (bound.args, tuple(bound.kwargs.items()))
        if self.key is not None:
            given = inspect.signature(function).bind(*bound.args, **bound.kwargs)
            given.apply_defaults()
            values = tuple(given.arguments.get(name) for name in self.key)
        shown = session().cache.fingerprint(function, values)
        setting = (world.arch, grid, world.checks, world.ranks, world.lnc, forced_algorithm())
        return None if shown is None else (shown, setting)

    # ---- tuning -----------------------------------------------------------------------------

    def _tuned(self, function: Callable[..., Any], estimate: Callable[[Config], Times]) -> Tuning:
        found: list[tuple[Config, Times]] = []
        failures: list[ConfigFailure] = []
        for config in self.configs:
            try:
                times = estimate(config)
            except Exception as error:
                if _is_ours(error):
                    return Tuning(config, [], [])
                location = getattr(error, "location", None) or raised_at(error)
                # The frames hold the tensors of the trace.
                failures.append(ConfigFailure(config, error.with_traceback(None), location))
            else:
                found.append((config, times))
        if not found:
            raise CompileError(
                f"none of the {len(failures)} configurations of {name_of(function)} compiles:"
                + "".join(f"\n  {failure}" for failure in failures),
                location=kernel_location(function),
                code="autotune-nothing",
                numbers={"got": 0, "least": 1},
            )
        if failures:
            session().warn(_refused(function, failures, len(self.configs)))
        # Sorting keeps the order of equals; what differs by rounding only is equal.
        found.sort(key=lambda f: round(f[1][0], 6))
        numbers = groups([times[0] for _, times in found])
        timings = [
            ConfigTime(config, *times, group)
            for (config, times), group in zip(found, numbers, strict=True)
        ]
        return Tuning(timings[0].config, timings, failures)


def _estimate(
    world: Any,
    function: Callable[..., Any],
    grid: Grid,
    bound: list[BoundArguments],
    doubts: Doubts,
    times: dict[str, Times],
) -> Times:
    kernels = session().cache
    key, compiled = kernels.get(function, bound[0], world.arch, grid, world.checks)
    world.check_groups(key, compiled)
    reports = reports_of(world, compiled, bound, doubts(bound))
    launch = executed(world, forced_algorithm(), compiled, reports)
    if (digest := launch.digest) not in times:
        p = launch.profile()
        times[digest] = p.device_us, p.low_us, p.high_us
    return times[digest]


def _is_ours(error: Exception) -> bool:
    """Whether a program that is only checked can't be timed, because nothing was computed."""
    return session().checker is not None and getattr(error, "code", None) == "spec-contents"


def _refused(function: Any, failures: list[ConfigFailure], count: int) -> RefusedConfigWarning:
    return RefusedConfigWarning(
        f"{len(failures)} of {count} configurations of {name_of(function)} don't compile and "
        "aren't considered:" + "".join(f"\n  {failure}" for failure in failures),
        location=kernel_location(function),
        numbers={"got": count - len(failures), "allowed": count},
    )


# ---- the kernel ---------------------------------------------------------------------------------


class Autotuned(Kernel):
    """A kernel some of whose compile-time arguments are chosen; see `autotune`.

    It is launched, simulated, profiled, estimated and given grids as any kernel. Called by another
    kernel it is inlined, and nothing is chosen: the caller gives the arguments.

    """

    tuner: Tuner

    def __init__(self, fn: Any, *args: Any, **options: Any) -> None:
        super().__init__(fn, *args, **options)
        kind = type(fn) if isinstance(fn, Kernel) else Kernel
        self._kind: type[Kernel] = getattr(fn, "_kind", kind)

    def __getitem__(self, grid: Any) -> Kernel:
        return self._kind.__getitem__(self, grid)  # those of Beta 1 read grids differently

    @property
    def best_config(self) -> Config | None:
        """The arguments of the last launch, of this kernel or one made of it; None before."""
        return None if self.tuner.last is None else dict(self.tuner.last.best)

    @property
    def timings(self) -> list[ConfigTime]:
        """What each configuration that compiles would take in the last launch, fastest first."""
        return [] if self.tuner.last is None else list(self.tuner.last.timings)

    @property
    def failures(self) -> list[ConfigFailure]:
        """The configurations that don't compile for the last launch, and why."""
        return [] if self.tuner.last is None else list(self.tuner.last.failures)


@leaves_package
def autotune(
    configs: Sequence[Mapping[str, Any]], key: Sequence[str] | None = None
) -> Callable[[Any], Autotuned]:
    """Have compile-time arguments of a kernel chosen: `@nki.autotune(configs=[...])`.

    A launch compiles the kernel with each configuration, estimates what each would take, and uses
    the fastest. Equal ones go by the order given; bands (`low_us`, `high_us`) aren't looked at,
    because what makes estimates of one kernel wrong makes its variants' wrong alike. Afterwards
    `.best_config`, `.timings` and `.failures` tell what was found. Configurations that don't
    compile are left out with a RefusedConfigWarning.

    Args:
        configs: for each a dict from parameter names to values.
        key: names of parameters whose shapes, dtypes and values the choice depends on; all by
            default. With fewer, a choice is kept for launches where only others differ.

    Returns:
        A decorator of kernels and functions; it goes above `@nki.jit`.

    Raises:
        LaunchError: a configuration isn't a dict, or a name isn't a parameter of the kernel.
    """
    checked = _checked(configs)
    if key is not None and (isinstance(key, str) or not all(isinstance(k, str) for k in key)):
        raise _wrong(f"key={key!r}; allowed: a list of names of parameters")

    @leaves_package
    def decorate(kernel: Any) -> Autotuned:
        tuned = Autotuned(kernel)
        if isinstance(kernel, Kernel):  # where it runs, and whether it is profiled, too
            vars(tuned).update({**vars(kernel), "_kind": tuned._kind})
        _refuse_unknown(tuned.fn, [*(key or ()), *(name for config in checked for name in config)])
        tuned.tuner = Tuner(checked, key)
        return tuned

    return decorate


def _checked(configs: Any) -> list[Config]:
    if isinstance(configs, (str, Mapping)) or not isinstance(configs, Iterable):
        raise _wrong(f"configs={configs!r}; allowed: a list of dicts from parameter to value")
    found = []
    for config in configs:
        if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
            raise _wrong(f"configuration {config!r}; allowed: a dict from parameter to value")
        found.append(dict(config))
    if not found:
        raise _wrong("configs is empty; give at least one dict from parameter to value")
    return found


def _refuse_unknown(function: Callable[..., Any], names: Sequence[str]) -> None:
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    unknown = sorted({*names} - {*parameters})
    if unknown:
        raise _wrong(
            f"{', '.join(unknown)}: {name_of(function)} has no such parameter; its parameters are "
            f"{', '.join(parameters)}",
            kernel_location(function),
        )


def _wrong(message: str, location: str | None = None) -> LaunchError:
    return LaunchError(
        f"nki.autotune: {message}", location=location or users_line(), code="autotune-config"
    )
