"""nki_dist: NKI kernels on simulated NeuronCores, on any machine.

import nki_dist as nki
import nki_dist.language as nl
import nki_dist.isa as nisa

Names are imported when they are first asked for (PEP 562): the process of a simulated core imports
the rooms that run programs, and neither kernels' launcher nor records, drift and profiles.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import nki_dist.forks  # noqa: F401  (first: forks wait for all imports after it)

if TYPE_CHECKING:
    from nki_dist import collectives, errors, isa, language
    from nki_dist.checks import Checks
    from nki_dist.compat.simulator import cpu_simulate
    from nki_dist.insight.drift import Drift
    from nki_dist.insight.record import Record
    from nki_dist.launcher.autotune import Autotuned, autotune
    from nki_dist.launcher.benchmarking import benchmark
    from nki_dist.launcher.binding import PerRank, per_rank
    from nki_dist.launcher.device_tensor import DeviceTensor
    from nki_dist.launcher.kernel import (
        Kernel,
        debug,
        drift,
        estimate,
        jit,
        profile,
        record,
        simulate,
    )
    from nki_dist.launcher.results import Run
    from nki_dist.launcher.tensor_spec import TensorSpec
    from nki_dist.launcher.world import World
    from nki_dist.linking.passes import link_passes
    from nki_dist.runtime.dry_report import DryRun

__version__ = "0.2.0"

__all__ = [
    "Autotuned",
    "Checks",
    "DeviceTensor",
    "Drift",
    "DryRun",
    "Kernel",
    "PerRank",
    "Record",
    "Run",
    "TensorSpec",
    "World",
    "autotune",
    "benchmark",
    "collectives",
    "cpu_simulate",
    "debug",
    "drift",
    "errors",
    "estimate",
    "isa",
    "jit",
    "language",
    "link_passes",
    "per_rank",
    "profile",
    "record",
    "simulate",
]

# Where each name is; "" for a room of that name.
_PLACES: Mapping[str, str] = MappingProxyType(
    {
        "Autotuned": "launcher.autotune",
        "Checks": "checks",
        "DeviceTensor": "launcher.device_tensor",
        "Drift": "insight.drift",
        "DryRun": "runtime.dry_report",
        "Kernel": "launcher.kernel",
        "PerRank": "launcher.binding",
        "Record": "insight.record",
        "Run": "launcher.results",
        "TensorSpec": "launcher.tensor_spec",
        "World": "launcher.world",
        "autotune": "launcher.autotune",
        "benchmark": "launcher.benchmarking",
        "cpu_simulate": "compat.simulator",
        "debug": "launcher.kernel",
        "drift": "launcher.kernel",
        "estimate": "launcher.kernel",
        "jit": "launcher.kernel",
        "link_passes": "linking.passes",
        "per_rank": "launcher.binding",
        "profile": "launcher.kernel",
        "record": "launcher.kernel",
        "simulate": "launcher.kernel",
        # Rooms of the interface, and those that are reached as `nki_dist.compat` without an import.
        **dict.fromkeys(("collectives", "errors", "isa", "language"), ""),
        **dict.fromkeys(
            ("arch", "checks", "codes", "compat", "compiler", "dtypes", "frameworks"), ""
        ),
        **dict.fromkeys(("hbm", "insight", "launcher", "linking", "ops", "program", "release"), ""),
        **dict.fromkeys(("report", "runtime", "timing", "topology"), ""),
    }
)

if not TYPE_CHECKING:  # type checkers would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{place or name}")
        found = module if not place else getattr(module, name)
        globals()[name] = found  # found without this function from now on
        return found


def __dir__() -> list[str]:
    """The interface, without the rooms of the package."""
    return sorted([*__all__, "__version__"])
