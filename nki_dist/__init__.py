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

# Where each name is; "" for rooms: those of the interface, and those that are reached as
# `nki_dist.compat` without an import.
_PLACES: Mapping[str, str] = MappingProxyType(
    {
        name: place
        for place, names in {
            "": "arch checks codes collectives compat compiler dtypes errors frameworks "
            "hbm insight isa language launcher linking ops program release report runtime timing "
            "topology",
            "checks": "Checks",
            "compat.simulator": "cpu_simulate",
            "insight.drift": "Drift",
            "insight.record": "Record",
            "launcher.autotune": "Autotuned autotune",
            "launcher.benchmarking": "benchmark",
            "launcher.binding": "PerRank per_rank",
            "launcher.device_tensor": "DeviceTensor",
            "launcher.kernel": "Kernel debug drift estimate jit profile record simulate",
            "launcher.results": "Run",
            "launcher.tensor_spec": "TensorSpec",
            "launcher.world": "World",
            "linking.passes": "link_passes",
            "runtime.dry_report": "DryRun",
        }.items()
        for name in names.split()
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
