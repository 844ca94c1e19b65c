"""One rank of many that does something else: what its error takes, beside the right program.

    python -m bench.wrong_ranks [--ranks 256,4096,16384] [--host dry|inprocess|ray]

Prints a Markdown table: for each number of ranks the right program, in which all do the same, and
those of `tests/collectives/odd_ranks.py`, in which the rank at two thirds doesn't. Each runs in a
process of its own, with `--memory` bytes of address space (not on Ray, which takes more). Seconds
are of the launch; memory is the most that the process had. "first" says whether the message names
the rank before all others. Fails if a message is longer than 40 lines, a wrong program takes 3
times as long as the right one and 1.5 times the memory, or another rank is named.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import nki_dist as nki
from bench.harness import apart, show
from nki_dist.errors import NkiError
from tests.collectives.odd_ranks import KERNELS, SPEC, X, counts_of

LINES, TIME, MEMORY = 40, 3.0, 1.5
NOISE = 0.05  # seconds that decide nothing
COLUMNS = ("ranks", "program", "seconds", "MiB", "lines", "bytes", "first")
BY_NAME = {kernel.fn.__name__: kernel for kernel in KERNELS}


def measured(host: str, name: str, ranks: int, odd: int) -> dict[str, Any]:
    """One launch, in this process."""
    warnings.simplefilter("ignore")
    kernel, groups = BY_NAME[name], [list(range(ranks))]
    options = {"lnc": 1, "host": host} if host != "dry" else {}
    world = nki.World.trn2_ultraserver(ranks=ranks, **options)
    launch = world.run if host != "dry" else world.dry_run
    if host != "dry":
        launch(kernel, X, counts_of(ranks, -1), groups)  # starts and links
    counts, text, core = counts_of(ranks, odd), "", ""
    start = time.perf_counter()
    try:
        launch(kernel, SPEC if host == "dry" else X, counts, groups)
    except NkiError as error:
        text, core = str(error), str(error.core)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = text.splitlines()
    told = [line for line in lines if "rank" in line][:1]
    name = f"rank {odd} core 0"
    first = core == name and told[0].removeprefix("  - ").startswith(name) if text else None
    world.close()
    return {
        "seconds": seconds,
        "mib": peak,
        "lines": len(lines),
        "bytes": len(text.encode()),
        "first": first,
    }


def in_a_process(host: str, memory: int, *words: Any) -> dict[str, Any]:
    """`measured` in a process of its own."""

    def limit() -> None:
        if host != "ray":
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    one = ",".join(map(str, words))
    return apart("-m", "bench.wrong_ranks", "--host", host, "--one", one, preexec_fn=limit)


def row(ranks: int, name: str, found: dict[str, Any]) -> tuple[object, ...]:
    first = {None: "", True: "yes", False: "**no**"}[found["first"]]
    times = (f"{found['seconds']:.2f}", f"{found['mib']:.0f}")
    return (ranks, name, *times, found["lines"], found["bytes"], first)


def rows(host: str, memory: int, ranks: Iterable[int], bad: list[str]) -> Iterator[tuple]:
    """Of the table; `bad` gets the programs whose error isn't as it should be."""
    for n in ranks:
        for name in BY_NAME:
            right = in_a_process(host, memory, name, n, -1)
            wrong = in_a_process(host, memory, name, n, n * 2 // 3)
            yield row(n, f"{name}, right", right)
            yield row(n, f"{name}, wrong", wrong)
            if not (within(wrong, right) and wrong["lines"] <= LINES):
                bad.append(name)


def within(wrong: dict[str, Any], right: dict[str, Any]) -> bool:
    fast = wrong["seconds"] <= TIME * right["seconds"] + NOISE
    return wrong["first"] and fast and wrong["mib"] <= MEMORY * right["mib"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="256,4096,16384")
    parser.add_argument("--host", default="dry", choices=("dry", "inprocess", "ray"))
    parser.add_argument("--memory", type=int, default=12 << 30)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, ranks, odd = asked.one.split(",")
        print(json.dumps(measured(asked.host, name, int(ranks), int(odd))))
        return 0
    bad: list[str] = []
    show(COLUMNS, rows(asked.host, asked.memory, map(int, asked.ranks.split(",")), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
