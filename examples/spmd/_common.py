"""What every example's script does around its kernels: run, compare with NumPy, report."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki_dist as nki

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Example:
    """An example: kernels that compute the same thing, and how to judge them.

    Attributes:
        title: for people.
        kernels: from simple to fast.
        inputs: `inputs(rng, small)` makes the arguments.
        reference: the same computation in NumPy, float64.
    """

    title: str
    kernels: tuple[Any, ...]
    inputs: Callable[[np.random.Generator, bool], Arrays]
    reference: Callable[..., np.ndarray]


def error(result: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, as a fraction of the largest expected magnitude."""
    difference = np.abs(result.astype(np.float64) - expected)
    return float(difference.max() / np.abs(expected).max())


def allowed_error(dtype: np.dtype) -> float:
    """Of a result: 1e-5 in float32, 2e-2 in bfloat16 and the other short types."""
    return 1e-5 if dtype == np.float32 else 2e-2


def options(description: str | None, lnc: int) -> argparse.Namespace:
    """The command line all examples share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lnc", type=int, default=lnc, help="NeuronCores to use: 1 or 2")
    parser.add_argument(
        "--host",
        choices=("ray", "inprocess"),
        default="ray",
        help="cores as Ray actors, or all in this process, where breakpoint() works",
    )
    parser.add_argument("--small", action="store_true", help="a shape that runs in no time")
    parser.add_argument("--profile", action="store_true", help="print each kernel's whole profile")
    parser.add_argument("--trace", metavar="FILE", help="write the last kernel's Perfetto trace")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    return parser.parse_args()


def run(example: Example, lnc: int = 1) -> None:
    """Run an example's kernels and say what came out; exit with 1 if an error is too large.

    Args:
        lnc: NeuronCores, unless the command line says otherwise.
    """
    chosen = options(sys.modules["__main__"].__doc__, lnc)
    arrays = example.inputs(np.random.default_rng(chosen.seed), chosen.small)
    expected = example.reference(*arrays)
    shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
    cores = "1 NeuronCore" if chosen.lnc == 1 else f"{chosen.lnc} NeuronCores"
    print(f"{example.title}: {shapes} on {cores}, host {chosen.host}")
    good = True
    for kernel in example.kernels:
        good &= _run_one(kernel, arrays, expected, chosen)
    if chosen.trace:
        profile = nki.profile(example.kernels[-1][chosen.lnc], host=chosen.host)(*arrays).profile
        profile.write_trace(chosen.trace)
        print(f"trace written to {chosen.trace}; open it at https://ui.perfetto.dev")
    sys.exit(0 if good else 1)


def summary(profile: Any) -> str:
    """Simulated time in one line: how long, and which engine had most to do."""
    busiest = max(profile.engines, key=lambda use: use.busy_us)
    return (
        f"{profile.total_us:,.1f} us; busiest engine: {busiest.engine} of core {busiest.core}, "
        f"{busiest.utilisation:.0%}"
    )


def on_host(kernel: Any, lnc: int, host: str) -> Any:
    """The kernel on `lnc` cores, as Ray actors or in this process."""
    return nki.simulate(kernel[lnc]) if host == "inprocess" else kernel[lnc]


def _run_one(kernel: Any, arrays: Arrays, expected: np.ndarray, chosen: argparse.Namespace) -> bool:
    """Run one kernel twice (the first run compiles), print its results; True if they are good."""
    first = nki.profile(kernel[chosen.lnc], host=chosen.host)(*arrays)
    started = time.perf_counter()
    again = on_host(kernel, chosen.lnc, chosen.host)(*arrays)
    took = time.perf_counter() - started
    result = first.outputs
    limit, found = allowed_error(result.dtype), error(result, expected)
    same = result.tobytes() == again.tobytes()
    print(f"\n{kernel.fn.__name__}")
    print(f"  error against NumPy  {found:.1e} of the maximum (allowed {limit:.0e})")
    print(f"  repeated             {'identical bits' if same else 'DIFFERENT BITS'}")
    print(f"  host time            {1e3 * took:.1f} ms")
    print(f"  simulated time       {summary(first.profile)}")
    if chosen.profile:
        print(f"\n{first.profile}")
    return found <= limit and same
