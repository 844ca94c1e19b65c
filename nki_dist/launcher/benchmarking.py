"""`nki.benchmark`: a kernel whose calls are measured, in the words of harnesses for hardware."""

from __future__ import annotations

from typing import Any

from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError
from nki_dist.launcher.kernel import Kernel, profile, profiled
from nki_dist.launcher.tracebacks import leaves_package
from nki_dist.timing import COMPILED


class Latency:
    """The latency of a kernel's last launch, in simulated microseconds on the device."""

    def __init__(self, profile: Any) -> None:
        self._profile = profile

    def get_latency_percentile(self, percentile: float) -> float:
        """`Profile.device_us`, the same for every percentile: simulated time doesn't vary.

        Raises:
            LaunchError: the percentile isn't a number from 0 to 100.
        """
        number = isinstance(percentile, (int, float)) and not isinstance(percentile, bool)
        if not number or not 0 <= percentile <= 100:
            raise LaunchError(
                f"get_latency_percentile({percentile!r}): a percentile is a number from 0 to 100",
                code="benchmark-option",
            )
        microseconds: float = self._profile.device_us
        return microseconds


class BenchmarkResult:
    """What a benchmarked kernel measured last; its copies with other grids share it.

    Attributes:
        profile: the simulator's profile of the last launch, None before the first.
    """

    def __init__(self, profile: Any = None) -> None:
        self.profile = profile

    @property
    def nc_latency(self) -> Latency:
        """Of the last launch.

        Raises:
            LaunchError: there was none.
        """
        if self.profile is None:
            raise LaunchError(
                "benchmark_result.nc_latency: the kernel wasn't called yet; call it with its "
                "arrays first: bench = nki.benchmark(kernel); bench(x, ...)",
                code="not-measured",
            )
        return Latency(self.profile)


@leaves_package
def benchmark(
    kernel: Any = None,
    host: str | None = None,
    schedule: str = COMPILED,
    *,
    warmup: int = 0,
    iters: int = 1,
) -> Any:
    """A kernel whose call returns a Run, as that of `profile` does, and keeps its latency.

    `benchmark_result.nc_latency.get_latency_percentile(99)` of the kernel is the simulated time of
    its last call, in us. Without a kernel it is a decorator: `nki.benchmark(warmup=2, iters=10)`.

    Args:
        kernel: an `nki.jit` kernel, with its grid if it has one, or a plain function.
        host, schedule: as of `profile`.
        warmup, iters: how often harnesses for hardware run a kernel before and while they measure.
            A call runs it once here: simulated time doesn't vary.

    Raises:
        LaunchError: no such schedule, or a count that isn't one.
    """
    for name, count, least in (("warmup", warmup, 0), ("iters", iters, 1)):
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise LaunchError(
                f"nki.benchmark({name}={count!r}): a number of runs is an int of at least {least}",
                location=users_line(),
                code="benchmark-option",
                numbers={"least": least},
            )
    if kernel is None:
        return lambda function: benchmark(function, host, schedule, warmup=warmup, iters=iters)
    measured: Kernel = profile(kernel, host, schedule)
    return measured.but(benchmark_result=BenchmarkResult(), _instead=_launch)


def _launch(world: Any, kernel: Any, grid: Any, args: Any, kwargs: Any) -> Any:
    """Launch, and keep what was measured. Other kinds of launches made of it aren't measured."""
    run = profiled(world, kernel, grid, args, kwargs)
    kernel.benchmark_result.profile = run.profile
    return run
