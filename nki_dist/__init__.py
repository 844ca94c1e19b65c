"""nki_dist: NKI kernels on simulated NeuronCores, on any machine.

import nki_dist as nki
import nki_dist.language as nl
import nki_dist.isa as nisa
"""

from nki_dist import collectives, errors, isa, language
from nki_dist.checks import Checks
from nki_dist.insight.drift import Drift
from nki_dist.insight.record import Record
from nki_dist.launcher.autotune import Autotuned, autotune
from nki_dist.launcher.benchmarking import benchmark
from nki_dist.launcher.binding import PerRank, per_rank
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
from nki_dist.runtime.dry_report import DryRun

from nki_dist.compat.simulator import cpu_simulate  # isort: skip  (needs the names above)

__version__ = "0.2.0"

__all__ = [
    "Autotuned",
    "Checks",
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
    "per_rank",
    "profile",
    "record",
    "simulate",
]


def __dir__() -> list[str]:
    """The interface, without the rooms of the package."""
    return sorted([*__all__, "__version__"])
