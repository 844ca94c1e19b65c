"""The demo: a causal attention block on two NeuronCore actors, checked against NumPy.

Starts Ray, runs `attention_block[2]` (sequence 1024, hidden 1024, 8 heads, bfloat16), runs it again
and in this process to compare bits, and reports what the two cores did and how long it would have
taken them.

    python examples/demo.py [--trace FILE] [--small]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
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
    parser.add_argument("--trace", type=Path, default=Path("out/attention_block_trace.json"))
    parser.add_argument("--small", action="store_true", help="a shape that runs in no time")
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    arrays = inputs(rng, chosen.small)
    length, hidden = arrays[0].shape
    print(
        f"Causal attention block: sequence {length}, hidden {hidden}, {HEADS} heads, "
        f"{arrays[0].dtype}; attention_block[{CORES}] on two simulated NeuronCores\n"
    )
    with Step("starting Ray and two NeuronCore actors (first kernel: a small vector add)"):
        one = np.ones(256, np.float32)
        vector_add[CORES](one, one)
    with Step("compiling the attention block and running it on both cores"):
        first = nki.profile(attention_block[CORES])(*arrays)
    with Step("running it again, now that it is compiled") as warm:
        again = attention_block[CORES](*arrays)
    with Step("running it in this process"):
        here = nki.simulate(attention_block[CORES])(*arrays)
    with Step("computing the same in NumPy, float64"):
        expected = reference(*arrays)
    chosen.trace.parent.mkdir(parents=True, exist_ok=True)
    with Step(f"writing {chosen.trace}"):
        first.profile.write_trace(chosen.trace)

    same = first.outputs.tobytes() == again.tobytes() == here.tobytes()
    found, allowed = error(first.outputs, expected), allowed_error(first.outputs.dtype)
    print(f"\nResult\n  error against NumPy   {found:.1e} of the maximum (allowed {allowed:.0e})")
    print(f"  bits                  {'identical' if same else 'DIFFERENT'}: Ray, Ray again, here")
    print(f"  host time             {1e3 * warm.seconds:.0f} ms for a launch on Ray")
    report(first)
    print(f"\nTrace: {chosen.trace.resolve()} (open it at https://ui.perfetto.dev)")
    return 0 if same and found <= allowed else 1


def report(run: Any) -> None:
    """What the cores did, and how long it would have taken them."""
    profile = run.profile
    print(f"  programs              {profile.cores}, one per NeuronCore")
    for number, core in enumerate(profile.timeline.cores):
        counts = Counter(i.opcode for i in core.graph.executed)
        common = ", ".join(f"{n} {opcode}" for opcode, n in counts.most_common(4))
        print(f"  core {number}                {counts.total()} instructions: {common}, ...")
    read, written = profile.hbm_read / 1e6, profile.hbm_written / 1e6
    print(f"  through shared_hbm    {read:.1f} MB read, {written:.1f} MB written by DMA")
    messages = sum(r.messages for r in run.reports)
    size = sum(r.message_bytes for r in run.reports)
    print(f"  between the cores     {messages} messages, {size / 1e6:.1f} MB")
    print(f"\nSimulated time\n{profile}")


if __name__ == "__main__":
    sys.exit(main())
