"""The demo: a causal attention block on two NeuronCore actors, checked against NumPy.

Starts Ray, runs `attention_block[2]` (sequence 1024, hidden 1024, 8 heads, bfloat16), runs it again
and in this process to compare bits, and says whether it is right, how long it would take on the
device, where the report is, and what to try next.

    python examples/demo.py [--report FILE] [--trace FILE] [--profile] [--small]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import nki_dist as nki

sys.path.insert(0, str(Path(__file__).parent / "spmd"))

from _common import allowed_error, error
from attention_block import HEADS, attention_block, inputs, reference
from vector_add import vector_add

CORES = 2
TICK = 0.5  # seconds between signs of life


class Step:
    """Shows that something is going on, and how long it took.

    On a terminal the seconds count up while it runs; elsewhere a line is printed when it is done.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.seconds = 0.0
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Step:
        self._started = time.perf_counter()
        print(f"  {self.title} ...", end="", flush=True)
        if sys.stdout.isatty():
            self._ticker.start()
        return self

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            passed = time.perf_counter() - self._started
            print(f"\r  {self.title} ... {passed:.0f} s", end="", flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        self._done.set()
        if self._ticker.is_alive():
            self._ticker.join()
        again = f"\r  {self.title} ..." if sys.stdout.isatty() else ""
        print(f"{again} {'failed' if kind else 'done'} in {self.seconds:.2f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=Path("out/attention_block.html"))
    parser.add_argument("--trace", type=Path, help="also write a trace for ui.perfetto.dev")
    parser.add_argument("--profile", action="store_true", help="print the whole profile, too")
    parser.add_argument("--small", action="store_true", help="a shape that runs in no time")
    chosen = parser.parse_args()
    begun = time.perf_counter()
    arrays = inputs(np.random.default_rng(0), chosen.small)
    length, hidden = arrays[0].shape
    print(
        f"A causal attention block on {CORES} simulated NeuronCores, each a Ray actor\n"
        f"  sequence {length:,}, hidden {hidden:,}, {HEADS} heads, {arrays[0].dtype}\n"
    )
    with Step("starting Ray and two NeuronCores, with a small kernel"):
        one = np.ones(256, np.float32)
        vector_add[CORES](one, one)
    with Step("compiling the attention block, running it on both"):
        first = nki.profile(attention_block[CORES])(*arrays)
    with Step("running it again, now that it is compiled") as warm:
        again = attention_block[CORES](*arrays)
    with Step("running it in this process, without Ray"):
        here = nki.simulate(attention_block[CORES])(*arrays)
    with Step("computing the same in NumPy, in float64"):
        expected = reference(*arrays)
    with Step("writing the report"):
        written = files(first.profile, chosen.report, chosen.trace)

    same = first.outputs.tobytes() == again.tobytes() == here.tobytes()
    found, allowed = error(first.outputs, expected), allowed_error(first.outputs.dtype)
    if chosen.profile:
        print(f"\n{first.profile}")
    good = "right" if same and found <= allowed else "WRONG"
    print(f"\nResult: {good}")
    print(f"  against NumPy   differs by {found:.1e} of the largest value ({allowed:.0e} allowed)")
    print(f"  bits            {'the same' if same else 'DIFFERENT'} on Ray, again, and in process")
    print(f"  between cores   {exchanged(first.reports)}")
    simulated(first.profile)
    print(f"  this machine    {warm.seconds:.2f} s for a launch once compiled, ", end="")
    print(f"{time.perf_counter() - begun:.0f} s for this demo")
    print("\nReport, a page to open in a browser: lines, engines, what to improve")
    for path in written:
        print(f"  {path}")
    print(suggestions())
    return 0 if good == "right" else 1


def files(profile: Any, report: Path, trace: Path | None) -> list[Path]:
    """Write the page and, if it is wanted, the trace."""
    for path in filter(None, (report, trace)):
        path.parent.mkdir(parents=True, exist_ok=True)
    profile.write_report(report)
    if trace is None:
        return [report.resolve()]
    profile.write_trace(trace)
    return [report.resolve(), trace.resolve()]


def exchanged(reports: Any) -> str:
    """What the cores sent each other."""
    messages = sum(r.messages for r in reports)
    size = sum(r.message_bytes for r in reports)
    return f"{messages} messages with {size / 1e6:.1f} MB, and what shared_hbm holds"


def simulated(profile: Any) -> None:
    """How long the cores would have taken."""
    print("\nTime")
    print(
        f"  on the device   {profile.device_us:.0f} us estimated, {profile.low_us:.0f} to "
        f"{profile.high_us:.0f} its band ({profile.total_us:.1f} us simulated)"
    )


def suggestions() -> str:
    """What to try next, with the Python that runs this."""
    python = Path(sys.executable)
    with contextlib.suppress(ValueError):  # it is elsewhere
        python = python.relative_to(Path.cwd())
    examples = Path(os.path.relpath(Path(__file__).parent))
    return f"""
Try next
  {python} {examples}/spmd/softmax.py --host inprocess --profile
      a shorter kernel; without Ray it starts at once, and breakpoint() works
  Take nisa.core_barrier out of {examples}/spmd/attention_block.py and run
      this again: the error says which two lines race for the same bytes
  README.md has a kernel of your own, worlds of many cores, and the docs"""


if __name__ == "__main__":
    sys.exit(main())
