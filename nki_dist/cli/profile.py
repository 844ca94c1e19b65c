"""`nki-dist profile`: where the simulated time of a program's kernels goes.

Run a program as `nki-dist run` does, then print a profile of each kernel it launched: simulated
time, use of the engines, what bounded it, and the kernel lines that cost most. A launch that is
repeated is shown once. For each kernel, DIR gets NAME.trace.json, which https://ui.perfetto.dev
opens, and NAME.json, the numbers. The program's results, errors and exit status stay its own.

--html writes the same with timeline, memory and source as a page that needs nothing else; of
several kernels one page each, numbered. Other formats than text are printed alone, or written to
--output-file: what the program prints goes to stderr then, and DIR gets nothing.

  summary-json  numbers by the names of Neuron Explorer's format of that name
  json          the numbers of NAME.json, a list with one entry per kernel

PROGRAM may also be a compiled kernel, a file that kernel[n].compile(...).save(FILE) wrote. It is
profiled without being run, so its loops must not depend on data.

[options]

examples:
  nki-dist profile softmax.py
  nki-dist profile --lnc 2 --most 3 --output profiles train.py --steps 1
  nki-dist profile --html softmax.html softmax.py
  nki-dist profile --output-format summary-json --output-file softmax.json softmax.py
  nki-dist profile softmax.nki-dist
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from nki_dist import arch
from nki_dist.arch.measured import measured
from nki_dist.cli import run as program
from nki_dist.cli.shared.command import add_command, check_positive
from nki_dist.cli.shared.files import check_writable, writing
from nki_dist.cli.shared.observed import run_observed
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.wire import COMPILED as FILE_BEGINS
from nki_dist.errors import LaunchError
from nki_dist.launcher.tally import Seen, Tally
from nki_dist.program import Loop
from nki_dist.report.explorer import summary
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing import COMPILED, SCHEDULES, Profile
from nki_dist.topology.topology import Topology

_FORMATS: Final = ("text", "summary-json", "json")


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "profile", "show where the time of a program's kernels goes", __doc__, run
    )
    parser.add_argument(
        "--most", type=int, default=10, metavar="N", help="only the N costliest (default 10)"
    )
    parser.add_argument(
        "--output",
        "-o",
        default="nki-dist-profile",
        metavar="DIR",
        help="directory for traces and numbers (default nki-dist-profile)",
    )
    parser.add_argument(
        "--advice", action="store_true", help="also say what would save time, and how much"
    )
    parser.add_argument("--html", metavar="FILE", help="also write a report to be opened anywhere")
    parser.add_argument(
        "--output-format",
        choices=_FORMATS,
        default="text",
        help="what to print (default text); see above",
    )
    parser.add_argument("--output-file", metavar="FILE", help="where to write it instead")
    parser.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default=COMPILED,
        help="as AWS's compiler is taken to order a kernel (default), or in program order",
    )
    program.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then print; a SystemExit of the program goes through.

    Raises:
        LaunchError: wrong options, or a compiled kernel whose time depends on data.
        ProgramFormatError: a damaged compiled kernel.
    """
    check_positive(arguments, "most")
    check_writable("--output-file", arguments.output_file)
    check_writable("--html", arguments.html)
    if arguments.output_format == "text":
        check_writable("--output", arguments.output, folder=True)
    if not arguments.module and is_compiled(arguments.program):
        _show([(of_file(arguments.program).profile(arguments.schedule), 1)], arguments)
        return 0
    tally = Tally()

    def show() -> None:
        found = [(seen.profile(arguments.schedule), seen.count) for seen in tally.launches()]
        _show(found, arguments)

    return run_observed(arguments, tally, show, arguments.output_format != "text")


def is_compiled(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(FILE_BEGINS)) == FILE_BEGINS
    except OSError:  # `program.run` says what is wrong with it
        return False


def of_file(path: str) -> Seen:
    """The launch of a compiled kernel's file.

    Raises:
        LaunchError, ProgramFormatError: it can't be read, or timed without being run.
    """
    compiled = Compiled.load(path)
    first = compiled.programs[0]
    if any(isinstance(i, Loop) for p in compiled.programs for i in p.body):
        raise LaunchError(
            f"{path}: kernel {first.kernel} has loops whose rounds are only known when it runs; "
            "profile the program that launches it",
            code="profile-dynamic-loop",
        )
    cores = len(compiled.programs)
    topology = Topology(measured(arch.get(first.platform)), 1, cores)
    return Seen(topology, forced_algorithm(), compiled, [()] * cores, count=1)


def _show(profiles: Sequence[tuple[Profile, int]], arguments: argparse.Namespace) -> None:
    """Print profiles and write their files, in the order of the first launches."""
    most = arguments.most
    costly = sorted(range(len(profiles)), key=lambda n: -profiles[n][0].total_us * profiles[n][1])
    shown = {n + 1: profiles[n] for n in sorted(costly[:most])}
    pages = _pages(arguments.html, shown)
    for n, page in pages.items():
        with writing("--html", str(page)):
            shown[n][0].write_report(page)
    text = arguments.output_format == "text"
    content = _text(shown, len(profiles), arguments, pages) if text else _plain(shown, arguments)
    if arguments.output_file is None:
        print(content)
    else:
        with writing("--output-file", arguments.output_file):
            Path(arguments.output_file).write_text(f"{content}\n", encoding="utf-8")


def _stem(n: int, profile: Profile) -> str:
    return f"{n}_{re.sub(r'[^A-Za-z0-9_]+', '_', profile.kernel)}"


def _pages(html: str | None, shown: Mapping[int, tuple[Profile, int]]) -> dict[int, Path]:
    """Where the report of each kernel goes: to the file asked for, if it is the only one."""
    if html is None:
        return {}
    file = Path(html)
    if len(shown) == 1:
        return dict.fromkeys(shown, file)
    return {
        n: file.with_name(f"{file.stem}_{_stem(n, p)}{file.suffix}") for n, (p, _) in shown.items()
    }


def _text(
    shown: Mapping[int, tuple[Profile, int]],
    launched: int,
    arguments: argparse.Namespace,
    pages: Mapping[int, Path],
) -> str:
    """The tables; traces and numbers are written on the way."""
    folder = Path(arguments.output)
    lines = []
    for n, (profile, count) in shown.items():
        stem = _stem(n, profile)
        with writing("--output", arguments.output, folder=True):
            folder.mkdir(parents=True, exist_ok=True)
            profile.write_trace(folder / f"{stem}.trace.json")
            profile.save(folder / f"{stem}.json")
        if arguments.advice:
            profile.advice()  # from now on part of its text
        times = "once" if count == 1 else f"{count} times"
        lines.append(f"\n==== kernel {n} of {launched}, launched {times}\n{profile}")
        files = f"trace {folder / f'{stem}.trace.json'}, numbers {folder / f'{stem}.json'}"
        lines.append(f"\n{files}" + (f", report {pages[n]}" if n in pages else ""))
    if launched > len(shown):
        left = launched - len(shown)
        lines.append(f"\n{left} cheaper kernels aren't shown; --most {launched} does")
    if not launched:
        lines.append("\nno kernel was launched")
    return "\n".join(lines)


def _plain(shown: Mapping[int, tuple[Profile, int]], arguments: argparse.Namespace) -> str:
    """What other tools read."""
    found: Any
    if arguments.output_format == "json":
        found = [{**p.to_dict(), "launches": count} for p, count in shown.values()]
        if arguments.advice:
            for numbers, (p, _) in zip(found, shown.values(), strict=True):
                numbers["advice"] = [asdict(finding) for finding in p.advice()]
    else:
        found = {}
        for n, (p, _) in shown.items():
            found.update(summary(p.to_dict(), p.timeline, _stem(n, p)))
    return json.dumps(found, indent=1)
