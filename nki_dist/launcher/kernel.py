"""`@nki.jit`, `kernel[grid](...)`, and kernels made of kernels: `nki.simulate` and its like."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, Final

from nki_dist import arch as architectures
from nki_dist import frameworks
from nki_dist.checks import Checks, Policy, checks_of
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.config import (
    CompileConfig,
    Config,
    SpecializationConfig,
    check_config,
    with_config,
)
from nki_dist.compiler.locations import users_line
from nki_dist.compiler.passes.schedule import edges_of, with_edges
from nki_dist.errors import LaunchError, NkiError
from nki_dist.isa.spec import tracing
from nki_dist.launcher.binding import Args, Kwargs, not_a_kernel
from nki_dist.launcher.estimates import estimate_of
from nki_dist.launcher.grid import check_launch_grid, make_grid
from nki_dist.launcher.pickling import reduced, stores_by_value
from nki_dist.launcher.recording import drift_one, record_one
from nki_dist.launcher.session import implicit_host, session
from nki_dist.launcher.tracebacks import leaves_package, trim
from nki_dist.launcher.traced import launch_traced, placeholders
from nki_dist.launcher.world import WORLDS_READ, World
from nki_dist.release import ANY
from nki_dist.runtime.settings import SETTINGS_READ, default_check, default_lnc, of_release
from nki_dist.timing import COMPILED, check_schedule

PLACES_READ: Final = (  # what a kernel's world and grid depend on in the environment
    *(architectures.PLATFORM_VARIABLE, architectures.NC_VARIABLE, *SETTINGS_READ),
    *WORLDS_READ,
)


class Kernel:
    """A kernel: a Python function that is compiled when it is called with arrays.

    Inside another kernel the call is inlined. `kernel[grid]` fixes the launch grid; without one the
    launch uses NEURON_LOGICAL_NC_CONFIG cores (1 by default).

    Attributes:
        fn: the Python function.
        platform: platform given to the decorator, or None.
        checks: what it is checked against, or None for what the environment says.
        benchmark_result: what its last call measured; kernels of `nki.benchmark` have it.
    """

    benchmark_result: Any

    def __init__(
        self,
        fn: Callable[..., Any],
        grid: Any = None,
        host: str | None = None,
        **options: Any,
    ) -> None:
        checks: Checks | None = None  # those of the environment
        tuner: Any = None
        if isinstance(fn, Kernel):  # nki.jit(nki.jit(f)); fn.fn is never a Kernel itself
            inner: Kernel = fn
            options = {**inner.options, **options}
            checks, tuner = inner.checks, inner.tuner
            grid = inner.grid if grid is None else grid
            fn = inner.fn
        if not callable(fn) or isinstance(fn, (type, types.BuiltinFunctionType)):
            raise not_a_kernel(fn)
        if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
            kind = "a generator function (`yield`)" if inspect.isgeneratorfunction(fn) else "async"
            raise LaunchError(
                f"a kernel is a plain function, {fn.__name__} is {kind}",
                location=f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}",
                code="kernel-function",
            )
        self.fn: Callable[..., Any] = fn
        self.grid: Any = grid
        self.options: dict[str, Any] = options
        self.platform: str | None = options.get("platform_target")
        self._host = host
        self._schedule = COMPILED
        # Takes the place of a launch that returns results: f(world, kernel, grid, args, kwargs).
        self._instead: Any = None
        self.checks: Checks | None = checks
        self.tuner: Any = tuner  # chooses compile-time arguments (see launcher.autotune), or None
        functools.update_wrapper(self, fn)

    @property
    def func(self) -> Callable[..., Any]:
        """`fn`, by the name that AWS's kernels have."""
        return self.fn

    def but(self, **changes: Any) -> Kernel:
        """The same kernel with other attributes."""
        changed = self.__copy__()
        vars(changed).update(changes)
        return changed

    def __copy__(self) -> Kernel:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: Any) -> Kernel:
        return self.__copy__()  # as functions, which are copied by reference

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By module and qualified name; see `nki_dist.launcher.pickling`."""
        return super().__reduce_ex__(protocol) if stores_by_value() else reduced(self)

    def __getitem__(self, grid: Any) -> Kernel:
        return self.but(grid=grid)

    __iter__ = None  # __getitem__ takes every index, so Python would iterate over grids for ever

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing():
            return self.fn(*args, **kwargs)
        __tracebackhide__ = True
        try:
            if sys.modules.keys().isdisjoint(frameworks.LIBRARIES):
                return self._launch(args, kwargs)
            return frameworks.uncompiled(self._launch_beside_others)(args, kwargs)
        except BaseException as error:
            trim(error)
            raise

    # torch.compile breaks its graph here instead of following Python into the launch.
    __call__._torchdynamo_disable = True  # type: ignore[attr-defined]
    __call__._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
        "NKI kernels run on the simulator, outside PyTorch's graphs; use fullgraph=False"
    )

    @leaves_package
    def with_schedule(self, edges: Sequence[tuple[str, str | Sequence[str]]]) -> Kernel:
        """The same kernel with further dependencies between named instructions.

        Args:
            edges: pairs (name, name or list of names): the instruction that was called with the
                first as `name=` runs after those of the others.

        Raises:
            NkiValidationError: the edges aren't such pairs; when traced: a name is unknown or means
                several instructions, or an edge contradicts the order of the kernel's lines.
        """
        checked = edges_of(edges)
        scheduled = with_edges(self.fn, checked)
        return self.but(fn=scheduled, _scheduled=(self, checked))

    @leaves_package
    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """The programs that calling the kernel with these arguments would run.

        `kernel[2].compile(a, b).save("kernel.nkip")` makes a file for `nki-dist disasm`.
        """
        return self._world().compile(self, *args, **kwargs)

    def _launch(self, args: Args, kwargs: Kwargs) -> Any:
        try:
            world, grid = self._placed()
        except NkiError as error:
            if (checker := session().checker) is None:
                raise
            return checker.refused(self, error)
        if self._instead is not None:
            return self._instead(world, self, grid, args, kwargs)
        return world.run_one(self, grid, args, kwargs, None)

    def _launch_beside_others(self, args: Args, kwargs: Kwargs) -> Any:
        """A launch where arguments may be placeholders of a jax transformation."""
        if not placeholders(args, kwargs):
            return self._launch(args, kwargs)
        if self._instead is not None:
            raise LaunchError(
                "nki.profile, nki.benchmark, nki.estimate, nki.record and nki.drift return what "
                "can't be part of a jax transformation; call them outside jax.jit",
                code="framework-transformation",
            )
        return launch_traced(self._world(), self, args, kwargs)

    def _world(self) -> World:
        """The warm world this kernel is launched on outside any other."""
        return self._placed()[0]

    def _placed(self) -> tuple[World, Grid]:
        """That world, and the grid of launches on it."""
        places, number = session().places, self.grid is None or type(self.grid) is int
        read = map(os.environ.get, PLACES_READ)
        query = self.grid if number else None, self._host, self.platform, self.checks, *read
        cached = places.get(query) if number else None
        if cached is not None and not cached[0].closed:
            return cached
        platform = (
            architectures.get(self.platform) if self.platform else architectures.from_environment()
        )
        lnc = default_lnc(platform.max_lnc)
        grid = make_grid(self.grid, platform, lnc)
        host = self._host or implicit_host()
        checks = of_release(self.checks) if self.checks else default_check()
        if self.grid is not None and checks.release != ANY and not hasattr(self.fn, "__beta1__"):
            check_launch_grid(grid, lnc, checks.nki)
        world = session().world(
            (platform.instance, grid.cores, host, checks, *map(os.environ.get, WORLDS_READ)),
            lambda: World(lnc=grid.cores, platform=platform.instance, host=host, check=checks),
        )
        if number and checks.release == ANY:  # else each launch is judged
            places[query] = world, grid
        return world, grid

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None or isinstance(self.fn, staticmethod):
            return self
        bound = self.but(fn=types.MethodType(self.fn, instance))
        functools.update_wrapper(bound, bound.fn)
        return bound

    def __repr__(self) -> str:
        grid = "" if self.grid is None else f"[{self.grid}]"
        return f"<nki kernel {getattr(self.fn, '__name__', self.fn)}{grid}>"


def _kernel(kernel: Any) -> Kernel:
    return kernel if isinstance(kernel, Kernel) else Kernel(kernel)


def _kind(fn: Any) -> type[Kernel]:
    """What to wrap a kernel in: Beta 1's read their grids differently, and go on doing so."""
    return type(fn) if isinstance(fn, Kernel) else Kernel


@leaves_package
def jit(
    fn: Any = None,
    *,
    compile_config: CompileConfig | None = None,
    specialization_config: SpecializationConfig | None = None,
    **options: Any,
) -> Any:
    """Make a kernel of a function: `@nki.jit`, `@nki.jit(platform_target="trn3")`.

    Args:
        fn: the function.
        compile_config: a `nki.compiler.CompileConfig`, from NKI 0.7 on.
        specialization_config: a `nki.compiler.SpecializationConfig`, likewise.
        options: `platform_target` chooses the platform; others that AWS's compiler knows (mode,
            debug_kernel, experimental_flags, ...) are accepted and have no effect here.

    Raises:
        LaunchError: it isn't a function, a configuration is none, or an option is platform_target
            under another name, which would run the kernel on another platform in silence.
    """
    for name in options:
        if name != "platform_target" and ("platform" in name or "target" in name):
            raise LaunchError(
                f"nki.jit has no option {name}; platform_target chooses the platform",
                code="jit-option",
            )
    config = check_config(compile_config, specialization_config)
    if fn is None:
        return lambda function: _jitted(function, config, options)
    return _jitted(fn, config, options)


def _jitted(fn: Any, config: Config, options: dict[str, Any]) -> Kernel:
    kernel = _kind(fn)(fn, **options)
    return kernel if config == Config() else kernel.but(fn=with_config(kernel.fn, config))


def _refuse_arguments(name: str, value: Any) -> None:
    """The kernel's arguments don't go beside the kernel."""
    if frameworks.describe(value) is not None:
        raise LaunchError(
            f"nki.{name}(kernel) gives a kernel; the arrays are its arguments",
            location=users_line(),
            code="kernel-function",
            hint=f"write nki.{name}(kernel)(x, ...)",
        )


@leaves_package
def simulate(kernel: Any, check: Policy | None = None) -> Kernel:
    """The same kernel, run in this process: same results, and breakpoint() works.

    Args:
        kernel: an `nki.jit` kernel or a plain function.
        check: what it is checked against, as of World.

    Raises:
        LaunchError: no such policy.
    """
    _refuse_arguments("simulate", check)
    checks = None if check is None else checks_of(check)
    return _kernel(kernel).but(_host="inprocess", _instead=None, checks=checks)


@leaves_package
def debug(kernel: Any, check: Policy | None = None) -> Kernel:
    """The same kernel, run in this process as it is traced, so that its Python sees values.

    In the kernel `tile.numpy()` is a copy of a tensor's values, `print(tile)` shows them, registers
    have values, and `breakpoint()` stops between instructions that have run. Several cores take
    turns. Results are the same bits as on other hosts.

    Args:
        kernel: an `nki.jit` kernel, with its grid if it has one, or a plain function.
        check: what it is checked against, as of World.

    Raises:
        LaunchError: no such policy.
    """
    _refuse_arguments("debug", check)
    checks = None if check is None else checks_of(check)
    return _kernel(kernel).but(_host="debug", _instead=None, checks=checks)


@leaves_package
def profile(kernel: Any, host: str | None = None, schedule: str = COMPILED) -> Kernel:
    """A kernel whose call returns a Run: `.outputs` and `.profile` (simulated time).

    Args:
        kernel: an `nki.jit` kernel, with its grid if it has one, or a plain function.
        host: as of World.
        schedule: "compiled" (time as AWS's compiler is taken to order the kernel) or "program" (in
            the order written). Results are the same.

    Raises:
        LaunchError: no such schedule.
    """
    _refuse_arguments("profile", host)
    _refuse_arguments("profile", schedule)
    base, checked = _kernel(kernel), check_schedule(schedule, users_line())
    return base.but(_host=host or base._host, _instead=profiled, _schedule=checked)


def profiled(world: World, kernel: Kernel, grid: Grid, args: Args, kwargs: Kwargs) -> Any:
    """The Run of a launch."""
    return world.run_one(kernel, grid, args, kwargs, kernel._schedule)


@leaves_package
def estimate(kernel: Any, schedule: str = COMPILED) -> Kernel:
    """A kernel whose call returns the Profile of its simulated time, without running it.

    It is compiled and replayed: no arithmetic, no simulated cores, no Ray. A `TensorSpec` may stand
    for any array; loops whose rounds depend on an array's contents need the array.

    Args:
        kernel: an `nki.jit` kernel, with its grid if it has one, or a plain function.
        schedule: as of `profile`.

    Raises:
        LaunchError: no such schedule.
    """
    _refuse_arguments("estimate", schedule)
    checked = check_schedule(schedule, users_line())
    return _kernel(kernel).but(_instead=_estimated, _schedule=checked)


def _estimated(world: World, kernel: Kernel, grid: Grid, args: Args, kwargs: Kwargs) -> Any:
    return estimate_of(world, kernel, grid, args, kwargs, kernel._schedule)


@leaves_package
def record(kernel: Any) -> Kernel:
    """A kernel whose call runs it once, in this process, and returns a Record: `.outputs`, and
    answers to what happened inside (`writes`, `at`, `origin`, `first_non_finite`, `diff`).

    Args:
        kernel: an `nki.jit` kernel, with its grid if it has one, or a plain function.
    """
    return _kernel(kernel).but(_host="inprocess", _instead=record_one)


@leaves_package
def drift(kernel: Any) -> Kernel:
    """A kernel whose call runs it once, in this process, beside itself in float64, and returns a
    Drift: the error that each kernel line added, the worst first, and `.outputs`.

    Args:
        kernel: an `nki.jit` kernel, with its grid if it has one, or a plain function.
    """
    return _kernel(kernel).but(_host="inprocess", _instead=drift_one)
