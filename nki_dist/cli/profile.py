"""`nki-dist profile`: where the simulated time of a program's kernels goes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from nki_dist import arch
from nki_dist.arch.measured import measured
from nki_dist.cli import run as program
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.wire import COMPILED as FILE_BEGINS
from nki_dist.errors import LaunchError
from nki_dist.launcher.profiles import profile_of
from nki_dist.launcher.session import session
from nki_dist.launcher.tally import Tally
from nki_dist.program import Loop
from nki_dist.runtime.hosts import forced_algorithm
from nki_dist.timing import COMPILED, SCHEDULES, Profile
from nki_dist.topology.topology import Topology

_DESCRIPTION: Final = """\
Run a program as `nki-dist run` does, then print a profile of each kernel it launched: simulated
time, use of the engines, what bounded it, and the kernel lines that cost most. A launch that is
repeated is shown once. For each kernel, DIR gets NAME.trace.json, which https://ui.perfetto.dev
opens, and NAME.json, the numbers. The program's results, errors and exit status stay its own.

PROGRAM may also be a compiled kernel, a file that kernel[n].compile(...).save(FILE) wrote. It is
profiled without being run, so its loops must not depend on data."""

_EPILOG: Final = """\
examples:
  nki-dist profile softmax.py
  nki-dist profile --lnc 2 --most 3 --output profiles train.py --steps 1
  nki-dist profile softmax.nki-dist"""


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "profile",
        help="show where the time of a program's kernels goes",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        "--schedule",
        choices=SCHEDULES,
        default=COMPILED,
        help="as AWS's compiler is taken to order a kernel (default), or in program order",
    )
    program.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then print; a SystemExit of the program goes through.

    Raises:
        LaunchError: wrong options, or a compiled kernel whose time depends on data.
        ProgramFormatError: a damaged compiled kernel.
    """
    if arguments.most < 1:
        raise LaunchError(
            f"--most {arguments.most}; must be a positive number", code="command-option"
        )
    folder = Path(arguments.output)
    if not arguments.module and _is_compiled(arguments.program):
        profile = _of_file(arguments.program, arguments.schedule)
        _show([(profile, 1)], arguments.most, folder)
        return 0
    session().observer = tally = Tally()
    try:
        return program.run(arguments)
    finally:  # kernels that ran before an error or sys.exit() are of interest, too
        session().observer = None
        found = [(seen.profile(arguments.schedule), seen.count) for seen in tally.launches()]
        _show(found, arguments.most, folder)


def _is_compiled(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(FILE_BEGINS)) == FILE_BEGINS
    except OSError:  # `program.run` says what is wrong with it
        return False


def _of_file(path: str, schedule: str = COMPILED) -> Profile:
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
    return profile_of(topology, forced_algorithm(), compiled, [()] * cores, schedule)


def _show(profiles: Sequence[tuple[Profile, int]], most: int, folder: Path) -> None:
    """Print profiles and write their files, in the order of the first launches."""
    costly = sorted(range(len(profiles)), key=lambda n: -profiles[n][0].total_us * profiles[n][1])
    for n in sorted(costly[:most]):
        profile, count = profiles[n]
        stem = f"{n + 1}_{re.sub(r'[^A-Za-z0-9_]+', '_', profile.kernel)}"
        folder.mkdir(parents=True, exist_ok=True)
        profile.write_trace(folder / f"{stem}.trace.json")
        profile.save(folder / f"{stem}.json")
        times = "once" if count == 1 else f"{count} times"
        print(f"\n==== kernel {n + 1} of {len(profiles)}, launched {times}\n{profile}")
        print(f"\ntrace {folder / f'{stem}.trace.json'}, numbers {folder / f'{stem}.json'}")
    if len(profiles) > most:
        print(f"\n{len(profiles) - most} cheaper kernels aren't shown; --most {len(profiles)} does")
    if not profiles:
        print("\nno kernel was launched")
