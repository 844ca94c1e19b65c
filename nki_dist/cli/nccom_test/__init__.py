"""`nki-dist nccom-test`: AWS's benchmark of collectives, in simulated time.

Simulated time and bandwidth of a collective operation for a sweep of sizes, with the options and
columns of AWS's nccom-test. size(B) is the larger of a rank's input and output; algbw is size over
time, busbw is that times what makes it independent of the number of ranks, in 2^30 bytes per
second. Nothing is run, so a sweep to 1 GB on hundreds of ranks takes no memory; --check runs
the operation in this process with real data. sendrecv, and permute without a file of pairs, send
from each rank to the next. Exit status: 0 done, 1 an error or a wrong result, 2 wrong usage.

[options]

examples:
  nki-dist nccom-test allr -r 64 -b 1KB -e 1GB -f 4
  nki-dist nccom-test -r 8 -b 1KB -e 1MB -f 4 -d bf16 --check allg
  nki-dist nccom-test redsct -r 128 -N 2 --platform trn2 --show-algorithm
  nki-dist nccom-test allr -r 64 --algorithm ring --report-to-json-file ring.json

options that only say how a device is driven (--iters, --hosts, --slurm-mode, ...) change nothing
"""

# Options, columns and units are those of its guide. Times are costs of one operation whose ranks
# all start together (see docs/collectives_time.md): they have no spread, so every statistic is the
# same.
#
# Source: tools/neuron-sys-tools/nccom-test.rst of the Neuron SDK's documentation, which defines the
# unit of both bandwidths as 2^30 bytes per second. The newer of its printed examples have 10^9;
# `--bandwidth-unit GB` prints those.

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nki_dist.cli.nccom_test import options
from nki_dist.cli.nccom_test.check import Checker
from nki_dist.cli.nccom_test.plan import Plan, bytes_of, sizes_of
from nki_dist.cli.shared.command import add_command
from nki_dist.cli.shared.files import writing

_UNITS: Final = {"GiB": 1 << 30, "GB": 10**9}
_SHOWN: Final = {"hierarchical": "hier"}  # as the guide calls it


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "nccom-test",
        "time and bandwidth of collectives, as AWS's nccom-test shows them",
        __doc__,
        run,
    )
    options.add_options(parser)


@dataclass(frozen=True)
class Row:
    """One size.

    Attributes:
        algorithm: its name.
        us: simulated time, in microseconds.
        scale: bytes of the unit of bandwidths.
    """

    plan: Plan
    size: int
    algorithm: str
    us: float
    scale: int

    @property
    def algbw(self) -> float:
        return self.size / (self.us / 1e6) / self.scale

    @property
    def busbw(self) -> float:
        return self.algbw * self.plan.op.bus_factor(self.plan.ranks)

    def cells(self, arguments: argparse.Namespace) -> dict[str, int | float | str]:
        """Columns by the guide's names, in its order."""
        cells: dict[str, int | float | str] = {
            "size(B)": self.size,
            "count(elems)": self.size // self.plan.dtype.itemsize,
        }
        if arguments.show_input_output_size:
            read, written = self.plan.counts(self.size)
            cells["total_input_size(B)"] = read * self.plan.dtype.itemsize
            cells["total_output_size(B)"] = written * self.plan.dtype.itemsize
        cells["type"] = self.plan.type
        for stat in arguments.stats:
            cells[f"time:{stat}(us)"] = self.us
        cells["algbw(GB/s)"], cells["busbw(GB/s)"] = self.algbw, self.busbw
        if arguments.show_algorithm:
            cells["algorithm"] = _SHOWN.get(self.algorithm, self.algorithm)
        return cells


def run(arguments: argparse.Namespace) -> int:
    """Print the table, write the report, and check results if that is asked for.

    Raises:
        LaunchError: wrong options.
    """
    options.settle(arguments)
    plan = options.plan_of(arguments)
    sizes = sizes_of(
        plan,
        arguments.minbytes,
        arguments.maxbytes,
        arguments.stepbytes,
        arguments.stepfactor,
    )
    limit = bytes_of(arguments.check_limit, "--check-limit")
    checker = Checker(plan, arguments.check or "random", arguments.seed, limit)
    if arguments.check:
        checker.check_world()
    if ignored := options.without_effect(arguments):
        _note(f"no effect on simulated time: {', '.join(ignored)}")
    rows = [
        Row(plan, size, *plan.time_us(size), _UNITS[arguments.bandwidth_unit]) for size in sizes
    ]
    cells = [row.cells(arguments) for row in rows]
    print("\n".join(table(cells)))
    print(f"Avg bus bandwidth:\t{sum(row.busbw for row in rows) / len(rows):.4f}GB/s", flush=True)
    report: dict[str, Any] = {"results": cells, "config": _config(arguments, plan)}
    errors = 0
    if arguments.check:
        report["check"] = checker.run(tuple(dict.fromkeys(sizes)), _note)
        errors = len(report["check"]["wrong"])
    if file := arguments.report_to_json_file:
        with writing("--report-to-json-file", file):
            Path(file).write_text(json.dumps(report, indent=4), encoding="utf-8")
    if errors:
        print(f"{errors} errors found - test failed")
    return 1 if errors else 0


def table(rows: Sequence[dict[str, int | float | str]]) -> list[str]:
    """Lines of the columns, aligned at their right ends."""
    texts = [list(rows[0])]
    texts += [
        [f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*texts)]
    return ["    ".join(cell.rjust(w) for cell, w in zip(line, widths)) for line in texts]


def _config(arguments: argparse.Namespace, plan: Plan) -> dict[str, Any]:
    """What was asked for, and what it was taken for."""
    given = {
        name: value
        for name, value in vars(arguments).items()
        if name not in ("run", "parser") and value is not None and value is not False
    }
    t = plan.topology
    return {**given, "platform": t.arch.instance, "lnc": t.lnc, "instances": t.instances}


def _note(text: str) -> None:
    """Beside the table, so that the table can be read by programs."""
    print(f"nccom-test: {text}", file=sys.stderr, flush=True)
