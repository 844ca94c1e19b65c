"""`nki-dist bench`: simulated and host time of the kernels that a program launches.

Run a program as `nki-dist run` does, then print a line for each kernel it launched: how often, its
instructions, its simulated time, and how long a launch takes on this machine. Simulated time is the
same on every machine and needs no repetition. Host time is the median of N launches that are
already compiled, with the inputs of the program's first one; copying inputs in is part of it,
compiling and copying results out isn't. Repetitions print nothing and change none of the program's
arrays.

[options]

examples:
  nki-dist bench softmax.py
  nki-dist bench --host inprocess --repeat 50 softmax.py
"""

# Host times are measured here and nowhere else in the package: they say how long the simulator
# takes on this machine, and nothing about a device.

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from nki_dist.cli import run as program
from nki_dist.cli.shared.command import add_command, check_positive
from nki_dist.cli.shared.observed import run_observed
from nki_dist.launcher.tally import Seen, Tally
from nki_dist.runtime.hosts import Launch, LaunchResult


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "bench", "show simulated and host time of a program's kernels", __doc__, run
    )
    parser.add_argument(
        "--repeat", type=int, default=5, metavar="N", help="launches to measure (default 5)"
    )
    program.add_options(parser)


def _silent(core: int, prefix: str, array: np.ndarray) -> None:
    """Neither shows nor saves what repeated launches print."""


class Stopwatch:
    """An observer of launches: counts them, and measures each kernel when it first sees it.

    It repeats the launch that has just been made. Stacks are filled anew each time, so the results
    that the launcher reads afterwards, those of the last repetition, are the same bytes.
    """

    def __init__(self, repeat: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.tally = Tally()
        self._repeat = repeat
        self._clock = clock

    def __call__(self, world: Any, launch: Launch, result: LaunchResult) -> None:
        seen = self.tally(world, launch, result)
        if seen.host_seconds is not None:
            return
        quiet = replace(launch, printer=_silent)
        taken = []
        for _ in range(self._repeat):
            start = self._clock()
            world.host.launch(quiet)
            taken.append(self._clock() - start)
        seen.host_seconds = statistics.median(taken)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then print; a SystemExit of the program goes through.

    Raises:
        LaunchError: wrong options.
    """
    check_positive(arguments, "repeat")
    stopwatch = Stopwatch(arguments.repeat)
    return run_observed(arguments, stopwatch, lambda: print(table(stopwatch.tally.launches())))


def table(launches: list[Seen]) -> str:
    """One line per kernel, in the order of the first launches."""
    if not launches:
        return "\nno kernel was launched"
    rows = ["", "launches  cores  instructions  simulated us    host ms  kernel"]
    for seen in launches:
        p = seen.profile()
        host = 1000 * (seen.host_seconds or 0.0)
        rows.append(
            f"{seen.count:>8}{p.cores:>7}{p.instructions:>14,}{p.total_us:>14,.3f}{host:>11,.2f}"
            f"  {p.kernel}"
        )
    return "\n".join(rows)
