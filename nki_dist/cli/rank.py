"""`nki-dist rank`: programs in the order of their simulated time.

Time programs without running their kernels (no arithmetic, no simulated cores), each in a process
of its own and within limits, and list them by what a device would take, the fastest first. The
time of a program is the sum over its launches; where programs make different numbers of them, the
order per launch is said, too. Programs are taken for variants of one kernel: those of a group are
too near to each other for their order to mean anything, so measure the first group. "within noise"
is said of programs whose band overlaps that of the fastest. Reports are kept by content (of the
program and the files it reads, its arguments, this package and its settings), so that only what
changed is timed again.

A program that fails, ends itself or reaches a limit is a result, too, with a code.
Exit status: 0 if every program was timed, 1 if one wasn't, 2 for wrong usage.

[options]

examples:
  nki-dist rank variants/*.py
  nki-dist rank --platform trn1 --json slow.py fast.py
  nki-dist rank --arguments settings.txt --json-lines matmul.py
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from nki_dist.cli.shared.command import add_command, add_platform, check_positive, refused
from nki_dist.cli.shared.programs import Programs, Task
from nki_dist.cli.shared.timed import TIMES
from nki_dist.cli.shared.workers import MIB
from nki_dist.timing.band import APART, HELD, groups

VERSION: Final = 1
"""Of the JSON report; fields may be added to it, others don't change."""


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "rank", "list programs by the simulated time of their kernels", __doc__, run
    )
    parser.set_defaults(forks=True)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="print each program's part of the report as it comes, and the order at the end",
    )
    parser.add_argument(
        "--arguments",
        metavar="FILE",
        help="time programs once for each line of FILE (-: stdin), which has their arguments",
    )
    add_options(parser)
    parser.add_argument("--no-cache", action="store_true", help="time all of them again")
    parser.add_argument(
        "programs", metavar="PROGRAM", nargs="+", help="a script, or a compiled kernel's file"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """How programs are timed."""
    add_platform(parser)
    parser.add_argument("--jobs", type=int, metavar="N", help="programs at once (default: cores)")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="seconds for each (default 600)"
    )
    parser.add_argument(
        "--memory", type=int, default=4096, metavar="MIB", help="MiB for each (default 4096)"
    )


def programs_of(
    arguments: argparse.Namespace, cache: bool, kernels: Path | None = None
) -> Programs:
    """What times programs as the options say; `cache` and `kernels` as of `Programs`.

    Raises:
        LaunchError: a number isn't positive.
    """
    check_positive(arguments, "jobs", "timeout", "memory")
    given = {name: getattr(arguments, name) for name in ("platform", "lnc", "check")}
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    jobs = arguments.jobs or os.cpu_count() or 1
    return Programs(options, jobs, arguments.timeout, arguments.memory * MIB, cache, kernels)


def run(arguments: argparse.Namespace) -> int:
    """Time the programs and print the report.

    Raises:
        LaunchError: wrong options.
    """
    tasks = _tasks(arguments.programs, arguments.arguments)
    programs = programs_of(arguments, not arguments.no_cache)
    found: dict[int, dict[str, Any]] = {}
    with closing(programs.each(tasks)) as reports:
        for n, report in reports:
            found[n] = part_of(tasks[n], report)
            if arguments.json_lines:
                print(json.dumps(found[n]), flush=True)
    whole = report_of([found[n] for n in range(len(tasks))])
    if arguments.json_lines:
        print(json.dumps(order_of(whole)))
    else:
        print(json.dumps(whole, indent=2) if arguments.json else text_of(whole))
    return 1 if whole["failures"] else 0


def _tasks(programs: Sequence[str], file: str | None) -> list[Task]:
    """The programs, once for each line of a file with their arguments, if there is one.

    Raises:
        LaunchError: the file can't be read, has no lines, or a line isn't words of a shell.
    """
    if file is None:
        return [Task(program) for program in programs]
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        lines = [tuple(shlex.split(line)) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise refused(f"--arguments {file}: {error}") from error
    if not lines:
        raise refused(f"--arguments {file} has no lines; there must be one for each variant")
    return [Task(program, arguments=line) for program in programs for line in lines]


def part_of(task: Task, found: dict[str, Any]) -> dict[str, Any]:
    """A program's part of the report."""
    program = {"program": shlex.join([task.program, *task.arguments])}
    if found["diagnostics"]:
        return {**program, "diagnostics": found["diagnostics"]}
    kernels = found["kernels"]
    total = {end: sum(k[end] * k["launches"] for k in kernels) for end in TIMES}
    launches = sum(k["launches"] for k in kernels)
    each = total["device_us"] / launches if launches else 0.0
    return {**program, **total, "launches": launches, "launch_us": each, "kernels": kernels}


def report_of(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report as data; docs/estimates.md says what its fields mean."""
    failures = [part for part in parts if "diagnostics" in part]
    timed = [dict(part) for part in parts if "diagnostics" not in part]
    timed.sort(key=lambda p: (p["device_us"], p["program"]))
    for program, group in zip(timed, groups([p["device_us"] for p in timed]), strict=True):
        program["within_noise"] = program is not timed[0] and (
            program["low_us"] <= timed[0]["high_us"]
        )
        program["group"] = group
    return {"version": VERSION, "apart": APART, "programs": timed, "failures": failures}


def order_of(report: dict[str, Any]) -> dict[str, Any]:
    """What the parts of a report don't say: names of programs, the fastest first, by group."""
    order: list[list[str]] = []
    for p in report["programs"]:
        order += [[]] if p["group"] > len(order) else []
        order[-1].append(p["program"])
    failed = [failure["program"] for failure in report["failures"]]
    return {"version": VERSION, "apart": APART, "order": order, "failed": failed}


def text_of(report: dict[str, Any]) -> str:
    """A report as a table, with what couldn't be timed below it."""
    lines = []
    if report["programs"]:
        lines.append(f"{'device us':>12}  {'band':>23}  group  program")
    for p in report["programs"]:
        band = f"{p['low_us']:,.1f} to {p['high_us']:,.1f}"
        each = f"sum of {p['launches']} launches, {p['launch_us']:,.1f} each"
        notes = [each] if p["launches"] > 1 else []
        notes += ["within noise"] if p["within_noise"] else []
        note = f"  ({', '.join(notes)})" if notes else ""
        lines.append(f"{p['device_us']:>12,.1f}  {band:>23}  {p['group']:>5}  {p['program']}{note}")
    if len({p["launches"] for p in report["programs"]}) > 1:
        order = sorted(report["programs"], key=lambda p: p["launch_us"])
        lines.append(
            "the order is that of sums, of different numbers of launches; per launch it is "
            + ", ".join(f"{p['program']} {p['launch_us']:,.1f}" for p in order)
        )
    if report["programs"]:
        lines.append(f"a band {HELD}")
        lines.append(f"a group is within {100 * (APART - 1):.0f}% of its first; measure group 1")
    for failure in report["failures"]:
        lines.append(f"{failure['program']}: not timed")
        for d in failure["diagnostics"]:
            where = f" at {d['file']}:{d['line']}" if d.get("file") else ""
            code = f" [{d['code']}]" if d.get("code") else ""
            lines.append(f"  {d['type']}: {d['message']}{where}{code}")
            lines += [f"  hint: {d['hint']}"] if d.get("hint") else []
    return "\n".join(lines)
