"""`nki-dist calibrate`: figures of a machine, from times that were measured on it.

Fit the figures that differ between machines (launch overhead, DMA rate, DMA latency, semaphore) to
times that you measured, and write them to a file. Worlds take it as nki.World(arch=FILE); programs,
kernels and estimates by NKI_DIST_ARCH=FILE.

MEASURED is a CSV file with a line for each program and these columns:
  program      a script or a compiled kernel, as for nki-dist rank; from the CSV file's folder on
  measured_us  what a device profiler shows for all its launches together, in microseconds
  platform     trn1, trn2 or trn3; may be left out, as in nki-dist run
  lnc          cores of kernels without a grid; may be left out
At least {least} rows of a platform are needed. Programs are timed without running their kernels.

[options]

examples:
  nki-dist calibrate measured.csv --output ours.json
  NKI_DIST_ARCH=ours.json nki-dist rank variants/*.py
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from nki_dist import arch
from nki_dist.arch import Arch
from nki_dist.arch.measured import FIGURES, VARIABLE, scaled, write
from nki_dist.cli import rank
from nki_dist.cli.shared.command import add_command
from nki_dist.cli.shared.programs import Task
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import LaunchError
from nki_dist.launcher.calibrating import LIMIT, Fit, fit
from nki_dist.launcher.tally import Seen
from nki_dist.topology.topology import Topology

LEAST: Final = 2 * len(FIGURES)
"""Rows of a platform: with fewer, figures would be fitted to the model's other errors."""
COLUMNS: Final = ("program", "measured_us", "platform", "lnc")


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "calibrate",
        "fit a machine's figures to times measured on it",
        __doc__,
        run,
        least=LEAST,
    )
    parser.set_defaults(forks=True)
    parser.add_argument(
        "--output",
        "-o",
        default="nki-dist-arch.json",
        metavar="FILE",
        help="where to write the figures (default nki-dist-arch.json)",
    )
    rank.add_options(parser)
    parser.add_argument("measured", metavar="MEASURED", help="a CSV file")


@dataclass(frozen=True)
class Row:
    """A line of the CSV file: a program, its time, and the options it is run with."""

    line: int
    program: str
    measured_us: float
    options: tuple[str, ...]


def _device_us(seen: Seen, machine: Arch) -> float:
    """The time of a kernel's launches on a machine with other figures."""
    there = replace(seen, topology=Topology(machine, seen.topology.ranks, seen.topology.lnc))
    return there.profile().device_us * seen.count


def run(arguments: argparse.Namespace) -> int:
    """Fit, print how well, and write the file.

    Raises:
        LaunchError: wrong options, a CSV file or program that can't be used, or too few rows.
    """
    rows = read(Path(arguments.measured))
    if len(rows) < LEAST:
        raise _too_few(arguments.measured, len(rows), "")
    launches = _launches(arguments, rows)
    platforms: dict[str, list[int]] = {}
    for n, found in enumerate(launches):
        names = sorted({seen.topology.arch.name for seen in found})
        if len(names) > 1:
            raise _wrong(f"line {rows[n].line} has launches on {' and '.join(names)}; give one")
        platforms.setdefault(names[0], []).append(n)
    for name, lines in platforms.items():
        if len(lines) < LEAST:
            raise _too_few(arguments.measured, len(lines), f" of {name}")
    values = {}
    for name, lines in platforms.items():
        estimates = partial(_estimates, [launches[n] for n in lines])
        fitted = fit(estimates, [rows[n].measured_us for n in lines], len(FIGURES))
        base = arch.get(name)
        factors = dict(zip(FIGURES, map(float, fitted.factors), strict=True))
        values[name] = scaled(base, factors)
        print(_text(name, base, values[name], fitted, [rows[n].program for n in lines]))
    source = f"calibrated with {len(rows)} rows of {Path(arguments.measured).name}"
    write(arguments.output, values, source)
    print(f"\nwritten to {arguments.output}; {VARIABLE}={arguments.output} makes launches use it")
    return 0


def _estimates(launches: Sequence[Sequence[Seen]], factors: np.ndarray) -> np.ndarray:
    """The time of every row, with the figures multiplied."""
    by_name = dict(zip(FIGURES, map(float, factors), strict=True))
    machines = {
        machine: machine.with_values("being fitted", **scaled(machine, by_name))
        for machine in {seen.topology.arch for row in launches for seen in row}
    }
    return np.array(
        [sum(_device_us(seen, machines[seen.topology.arch]) for seen in row) for row in launches]
    )


# ---- rows ---------------------------------------------------------------------------------------


def read(path: Path) -> list[Row]:
    """The rows of a CSV file.

    Raises:
        LaunchError: it can't be read, has other columns, or a value that can't be used.
    """
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or ()
            lines = [(reader.line_num, line) for line in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _wrong(f"{path} can't be read: {error}") from None
    wrong = sorted({*columns} - {*COLUMNS}) or sorted({*COLUMNS[:2]} - {*columns})
    if wrong:
        raise _wrong(
            f"{path} has the columns {', '.join(columns) or 'none'}; needed are program and "
            "measured_us, allowed platform and lnc"
        )
    return [_row(path, number, line) for number, line in lines]


def _row(path: Path, number: int, line: dict[str, Any]) -> Row:
    where = f"{path} line {number}"
    if None in line or None in line.values():
        raise _wrong(f"{where} has more or fewer values than there are columns")
    try:
        measured = float(line["measured_us"])
    except ValueError:
        measured = 0.0
    if not 0 < measured < float("inf"):
        raise _wrong(f"{where}: measured_us is {line['measured_us']!r}; must be a positive number")
    options: list[str] = []
    platform, lnc = line.get("platform", "").strip(), line.get("lnc", "").strip()
    if platform:
        options += ["--platform", arch.get(platform).instance]
    if lnc:
        if lnc not in ("1", "2"):
            raise _wrong(f"{where}: lnc is {lnc!r}; allowed: 1 or 2")
        options += ["--lnc", lnc]
    return Row(number, str(path.parent / line["program"].strip()), measured, tuple(options))


def _launches(arguments: argparse.Namespace, rows: Sequence[Row]) -> list[list[Seen]]:
    """What each row's program launches.

    Raises:
        LaunchError: a program can't be timed.
    """
    with tempfile.TemporaryDirectory(prefix="nki-dist-") as folder:
        programs = rank.programs_of(arguments, cache=False, kernels=Path(folder))
        reports = programs.reports([Task(row.program, row.options) for row in rows])
        failed = [
            f"line {row.line}, {row.program}: {report['diagnostics'][0]['message']}"
            for row, report in zip(rows, reports, strict=True)
            if report["diagnostics"]
        ]
        if failed:
            raise _wrong("programs can't be timed:" + "".join(f"\n  {line}" for line in failed))
        return [[_loaded(kernel) for kernel in report["kernels"]] for report in reports]


def _loaded(kernel: dict[str, Any]) -> Seen:
    """A kernel as a report has it whose kernels were left in files."""
    topology = Topology(arch.get(kernel["platform"]), kernel["ranks"], kernel["lnc"])
    compiled = Compiled.load(kernel["file"])
    return Seen(topology, kernel["algorithm"], compiled, kernel["trips"], count=kernel["launches"])


def _too_few(file: str, count: int, kind: str) -> LaunchError:
    return LaunchError(
        f"{file} has {count} rows{kind}; {len(FIGURES)} figures need at least {LEAST}",
        code="calibrate-rows",
        numbers={"got": count, "least": LEAST},
    )


def _wrong(message: str) -> LaunchError:
    return LaunchError(f"calibrate: {message}", code="calibrate-rows")


# ---- what is printed ----------------------------------------------------------------------------


def _text(
    name: str, base: Arch, values: dict[str, Any], found: Fit, programs: Sequence[str]
) -> str:
    lines = [f"{name}, {len(programs)} rows", "figure             factor  fields"]
    for figure, factor, determined in zip(FIGURES, found.factors, found.determined, strict=True):
        fields = ", ".join(
            f"{f} {_short(getattr(base, f))} -> {_short(values[f])}" for f in FIGURES[figure]
        )
        note = "  (the rows say little about it)" if determined < 0.5 else ""
        if abs(abs(np.log(factor)) - LIMIT) < 1e-6:
            note = "  (at its limit: look for something else that is wrong)"
        lines.append(f"{figure:<17}{factor:>8.3f}  {fields}{note}")
    lines.append("estimated / measured: before  fitted  left out")
    for program, *ratios in zip(programs, found.before, found.after, found.left_out, strict=True):
        lines.append("".join(f"{r:>10.3f}" for r in ratios) + f"  {program}")
    off = [100 * np.abs(np.exp(np.abs(np.log(r))) - 1) for r in (found.before, found.left_out)]
    lines.append(
        f"off by (median, worst): before {np.median(off[0]):.1f} %, {max(off[0]):.1f} %; each row "
        f"left out {np.median(off[1]):.1f} %, {max(off[1]):.1f} %"
    )
    if np.median(off[1]) > np.median(off[0]):
        print("nki-dist: the fit predicts worse than the figures it began with", file=sys.stderr)
    return "\n".join(lines)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
