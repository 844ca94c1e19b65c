"""`nki-dist rank`: programs in the order of their simulated time.

Time programs without running their kernels (no arithmetic, no simulated cores), each in a process
of its own, and list them by what a device would take, the fastest first. The time of a program is
the sum over its launches; where programs make different numbers of them, the order per launch is
said, too. "within noise" is said of programs whose band overlaps that of the fastest: measure
those. Reports are kept by content (of the program and the files it reads, of this package and its
settings), so that only what changed is timed again.

Exit status: 0 if every program was timed, 1 if one wasn't, 2 for wrong usage.

[options]

examples:
  nki-dist rank variants/*.py
  nki-dist rank --platform trn1 --json slow.py fast.py
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any, Final

from nki_dist.cli.shared.command import add_command, refused
from nki_dist.cli.shared.programs import Programs, Task
from nki_dist.timing.band import HELD

VERSION: Final = 1
"""Of the JSON report; fields may be added to it, others don't change."""


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "rank", "list programs by the simulated time of their kernels", __doc__, run
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_options(parser)
    parser.add_argument("--no-cache", action="store_true", help="time all of them again")
    parser.add_argument(
        "programs", metavar="PROGRAM", nargs="+", help="a script, or a compiled kernel's file"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """How programs are timed."""
    parser.add_argument("--platform", metavar="NAME", help="trn1, trn2 or trn3")
    parser.add_argument("--lnc", type=int, metavar="N", help="cores of kernels without a grid")
    parser.add_argument("--check", metavar="POLICY", help="what kernels are held to, as of World")
    parser.add_argument("--jobs", type=int, metavar="N", help="programs at once (default: cores)")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds for each (default 600)"
    )


def programs_of(arguments: argparse.Namespace, cache: bool) -> Programs:
    """What times programs as the options say.

    Raises:
        LaunchError: a number isn't positive.
    """
    jobs = os.cpu_count() or 1 if arguments.jobs is None else arguments.jobs
    for name, value in (("jobs", jobs), ("timeout", arguments.timeout)):
        if not value > 0:
            raise refused(f"--{name} {value}; must be positive")
    options: list[str] = []
    for name in ("platform", "lnc", "check"):
        value = getattr(arguments, name)
        if value is not None:
            options += [f"--{name}", str(value)]
    return Programs(options, jobs, arguments.timeout, cache)


def run(arguments: argparse.Namespace) -> int:
    """Time the programs and print the report.

    Raises:
        LaunchError: wrong options.
    """
    tasks = [Task(program) for program in arguments.programs]
    reports = programs_of(arguments, not arguments.no_cache).reports(tasks)
    report = report_of(arguments.programs, reports)
    print(json.dumps(report, indent=2) if arguments.json else _text(report))
    return 1 if report["failures"] else 0


def report_of(programs: Sequence[str], reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report as data; docs/estimates.md says what its fields mean."""
    timed, failures = [], []
    for name, found in zip(programs, reports, strict=True):
        if found["diagnostics"]:
            failures.append({"program": name, "diagnostics": found["diagnostics"]})
            continue
        kernels = found["kernels"]
        total = {
            end: sum(k[end] * k["launches"] for k in kernels)
            for end in ("device_us", "low_us", "high_us")
        }
        launches = sum(k["launches"] for k in kernels)
        each = total["device_us"] / launches if launches else 0.0
        counts = {"launches": launches, "launch_us": each}
        timed.append({"program": name, **total, **counts, "kernels": kernels})
    timed.sort(key=lambda p: (p["device_us"], p["program"]))
    for program in timed:
        # Of the same problem, so what makes one estimate wrong makes the others wrong alike: the
        # order is better than the bands, but it takes a measurement to be sure.
        program["within_noise"] = program is not timed[0] and (
            program["low_us"] <= timed[0]["high_us"]
        )
    return {"version": VERSION, "programs": timed, "failures": failures}


def _text(report: dict[str, Any]) -> str:
    lines = []
    if report["programs"]:
        lines.append(f"{'device us':>12}  {'band':>23}  program")
    for p in report["programs"]:
        band = f"{p['low_us']:,.1f} to {p['high_us']:,.1f}"
        each = f"sum of {p['launches']} launches, {p['launch_us']:,.1f} each"
        notes = [each] if p["launches"] > 1 else []
        notes += ["within noise"] if p["within_noise"] else []
        note = f"  ({', '.join(notes)})" if notes else ""
        lines.append(f"{p['device_us']:>12,.1f}  {band:>23}  {p['program']}{note}")
    if len({p["launches"] for p in report["programs"]}) > 1:
        order = sorted(report["programs"], key=lambda p: p["launch_us"])
        lines.append(
            "the order is that of sums, of different numbers of launches; per launch it is "
            + ", ".join(f"{p['program']} {p['launch_us']:,.1f}" for p in order)
        )
    if report["programs"]:
        lines.append(f"a band {HELD}")
    for failure in report["failures"]:
        lines.append(f"{failure['program']}: not timed")
        for d in failure["diagnostics"]:
            where = f" at {d['file']}:{d['line']}" if d.get("file") else ""
            code = f" [{d['code']}]" if d.get("code") else ""
            lines.append(f"  {d['type']}: {d['message']}{where}{code}")
            lines += [f"  hint: {d['hint']}"] if d.get("hint") else []
    return "\n".join(lines)
