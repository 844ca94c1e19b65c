"""Latencies of a benchmark by the names that harnesses read: `benchmark_result.nc_latency`."""

from __future__ import annotations

from typing import Any

from nki_dist.errors import LaunchError


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
