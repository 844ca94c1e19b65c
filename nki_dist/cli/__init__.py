"""What is asked from a shell: the program `nki-dist`, a file or folder for each of its commands.

A subcommand is a module of this package with a function `register(subparsers)`, which adds its
parser and sets `run` to a function from parsed arguments to an exit status. Modules are found by
looking, so a new subcommand is a new file, or a folder if it has parts. The folder `shared` is no
command: it has what several of them use.

Exit status: 0 done, 1 an error of ours (or what a subcommand says), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from nki_dist import __version__
from nki_dist.cli.shared.child import carried_out
from nki_dist.errors import LaunchError, NkiError

_DESCRIPTION: Final = "Run and inspect NKI kernels on simulated NeuronCores."
_EPILOG: Final = "`nki-dist COMMAND --help` explains each command."


def parser() -> argparse.ArgumentParser:
    """The parser with every subcommand of this package."""
    top = argparse.ArgumentParser("nki-dist", description=_DESCRIPTION, epilog=_EPILOG)
    top.add_argument("--version", action="version", version=f"nki_dist {__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for found in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if found.name != "shared":
            importlib.import_module(f"{__name__}.{found.name}").register(subparsers)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; `argv` stands in for `sys.argv[1:]`."""
    arguments = parser().parse_args(argv)
    try:
        if argv is not None and getattr(arguments, "forks", False):
            return _apart(argv)
        if getattr(arguments, "answers", False) and argv is None:
            return carried_out(lambda: _run(arguments))
        return _run(arguments)
    except LaunchError as error:
        return int(getattr(arguments, "unanswered", _show)(error, arguments))


def _apart(argv: Sequence[str]) -> int:
    """By a process that is this command's: forks of one that has Ray's threads may stop both."""
    ran = subprocess.run([sys.executable, "-m", "nki_dist", *argv], capture_output=True, text=True)
    print(ran.stdout, end="")
    print(ran.stderr, end="", file=sys.stderr)
    return ran.returncode


def _run(arguments: argparse.Namespace) -> int:
    try:
        try:
            return int(arguments.run(arguments))
        finally:
            sys.stdout.flush()  # nothing is left for the interpreter's end, which may not come
    except NkiError as error:
        return _show(error)
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; Python must not complain while flushing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _show(error: NkiError, *_: object) -> int:
    print(f"nki-dist: {type(error).__name__}: {error}", file=sys.stderr)
    return 1
