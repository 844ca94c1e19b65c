"""`nki-dist neuron-profile`: what evaluators call `neuron-profile` for, on simulated launches.

Show the measurement that a kernel left in the files of save_neff_name and save_trace_name, with the
options of AWS's neuron-profile. Times are simulated.

[options]

examples:
  nki-dist neuron-profile capture -n kernel.neff -s kernel.ntff
  nki-dist neuron-profile view -n kernel.neff -s kernel.ntff --output-format summary-json
"""

# `nki-dist run` puts it on the path under AWS's name, where there is no such program, so that
# harnesses which measure with `save_neff_name`, `neuron-profile capture` and `view` run unchanged.

from __future__ import annotations

import argparse
import atexit
import json
import os
import shlex
import shutil
import sys
import tempfile
from typing import Any, Final

from nki_dist.cli.shared.command import add_command
from nki_dist.compat.measured import read_measurement

NAME: Final = "neuron-profile"


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        NAME,
        "show a measurement that a program saved, as AWS's neuron-profile",
        __doc__,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    capture = actions.add_parser("capture", help="copy the measurement to the trace file")
    view = actions.add_parser("view", help="print the measurement")
    for action in (capture, view):
        action.add_argument("-n", "--neff-path", required=True, metavar="FILE")
        action.add_argument("-s", "--session-file", metavar="FILE", default="profile.ntff")
    capture.add_argument("--num-exec", type=int, default=1, metavar="N", help="of the device")
    capture.add_argument(
        "--profile-nth-exec", type=int, metavar="M", help="write FILE_exec_M.ntff, too"
    )
    view.add_argument(
        "--output-format", choices=("summary-json", "summary-text"), default="summary-text"
    )
    capture.set_defaults(run=run_capture)
    view.set_defaults(run=run_view)


def run_capture(arguments: argparse.Namespace) -> int:
    """Copy a measurement; every execution takes the same simulated time.

    Raises:
        LaunchError: the file holds none.
    """
    read_measurement(arguments.neff_path)
    targets = [arguments.session_file]
    every = arguments.profile_nth_exec
    if every:
        base = arguments.session_file.removesuffix(".ntff")
        last = max(arguments.num_exec, every)
        targets += [f"{base}_exec_{n}.ntff" for n in range(every, last + 1, every)]
    for target in targets:
        if os.path.realpath(target) != os.path.realpath(arguments.neff_path):
            shutil.copyfile(arguments.neff_path, target)
    return 0


def run_view(arguments: argparse.Namespace) -> int:
    """Print a measurement.

    Raises:
        LaunchError: the files hold none.
    """
    traced = os.path.exists(arguments.session_file)
    summary = read_measurement(arguments.session_file if traced else arguments.neff_path)
    if arguments.output_format == "summary-json":
        print(json.dumps(summary))
        return 0
    for rank, numbers in summary.items():
        print(rank)
        width = max(map(len, numbers), default=0)
        for name, value in numbers.items():
            print(f"  {name:{width}}  {value}")
    return 0


def put_on_path() -> None:
    """Let this process and those it starts find `neuron-profile`, unless there is a real one."""
    if shutil.which(NAME) is not None:
        return
    folder = tempfile.mkdtemp(prefix="nki_dist_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = os.path.join(folder, NAME)
    path = os.pathsep.join(p for p in sys.path if p)
    with open(script, "w", encoding="utf-8") as file:
        file.write(
            f"#!/bin/sh\nPYTHONPATH={shlex.quote(path)} "
            f'exec {shlex.quote(sys.executable)} -m nki_dist {NAME} "$@"\n'
        )
    os.chmod(script, 0o755)
    os.environ["PATH"] = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
