"""Which files of the package a warm launch enters, and how often the work moves between them.

    python -m bench.rooms [--list] [--against CHECKOUT]

The launch is `kernel[2](x)` of a one-instruction kernel in this process, compiled and linked
before. Counted are Python calls and returns in frames of nki_dist: a switch is a step from a frame
of one file to a frame of another, callers that aren't ours left out. Counts, unlike times, are the
same on every machine; `--against` compares times with those of another checkout, in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

PACKAGE = str(Path(nki.__file__).parent)


@nki.jit
def passes_on(x):
    """Reads nothing and computes nothing: one DMA."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[0] // nl.num_programs(0)
    rows = slice(nl.program_id(0) * half, (nl.program_id(0) + 1) * half)
    nisa.dma_copy(dst=out[rows], src=x[rows])
    return out


class Visits:
    """Files in the order the work enters them, while it is active."""

    def __init__(self) -> None:
        self.order: list[str] = []

    def __enter__(self) -> Visits:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        at = frame if event == "call" else frame.f_back
        if event not in ("call", "return") or at is None:
            return
        file = at.f_code.co_filename
        if file.startswith(PACKAGE) and (not self.order or self.order[-1] != file):
            self.order.append(file)

    @property
    def switches(self) -> int:
        """Steps from one file to another."""
        return max(0, len(self.order) - 1)


def warm_launch() -> Visits:
    """The visits of a launch that was made twice before."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    kernel = nki.simulate(passes_on)[2]
    for _ in range(2):
        np.testing.assert_array_equal(kernel(x), x)
    with Visits() as visits:
        kernel(x)
    return visits


def seconds(launches: int = 1000) -> float:
    """Processor time of a warm launch: the median."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    kernel = nki.simulate(passes_on)
    taken = []
    for _ in range(launches):
        start = time.process_time()
        kernel[2](x)
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def against(checkout: Path, runs: int = 5) -> list[tuple[float, float]]:
    """Microseconds here and with the package of another checkout, in processes that take turns."""

    from bench.harness import apart  # the other checkout runs this file, and may not have it

    def measured(package: Path) -> float:
        environment = {**os.environ, "PYTHONPATH": str(package), "OPENBLAS_NUM_THREADS": "1"}
        return float(apart(__file__, "--seconds", env=environment)) * 1e6

    return [(measured(Path(PACKAGE).parent), measured(checkout)) for _ in range(runs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name the files")
    parser.add_argument("--against", type=Path, help="another checkout, to compare times with")
    parser.add_argument("--seconds", action="store_true", help="print the time of a launch only")
    arguments = parser.parse_args()
    if arguments.seconds:
        print(seconds())
        return
    visits = warm_launch()
    entered = Counter(visits.order)
    print(f"a warm kernel[2](x): {len(entered)} files entered, {visits.switches} switches")
    if arguments.list:
        for file, times in entered.most_common():
            print(f"{times:5}  {Path(file).relative_to(PACKAGE)}")
    if arguments.against:
        pairs = against(arguments.against.resolve())
        for here, there in pairs:
            print(f"{here:6.1f} us here, {there:6.1f} us there: {here / there:.2f}")
        print(f"median ratio {statistics.median(a / b for a, b in pairs):.2f}")


if __name__ == "__main__":
    main()
