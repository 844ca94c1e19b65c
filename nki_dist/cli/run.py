"""`nki-dist run`: an unmodified program, with `nki` and its kin resolving to the simulator.

Run a Python program that imports nki (or neuronxcc.nki, neuron_dtypes, ...) on simulated
NeuronCores; PyTorch's XLA device, where there is none, is the CPU. The program isn't changed;
everything after its name is passed to it. Exit status and tracebacks are the program's.

[options]

The options set what the environment variables of the same meaning would: --platform
NEURON_PLATFORM_TARGET_OVERRIDE, --lnc NEURON_LOGICAL_NC_CONFIG, --host NKI_DIST_HOST, --check
NKI_DIST_CHECK, --release NKI_DIST_RELEASE. A program that says otherwise itself (kernel[1],
nki.World(host=...)) is obeyed.

examples:
  nki-dist run matmul.py
  nki-dist run --platform trn3 --lnc 2 train.py --steps 10
  nki-dist run --host inprocess -m package.module      (breakpoint() works in kernels)
"""

# Invariant: the program sees what `python script.py args` would have given it (`__main__`, argv,
# its directory first on the path), its exit status is this command's, and an uncaught exception is
# shown by `sys.excepthook` with the program's own frames only. Afterwards the process ends, so
# nothing is put back.

from __future__ import annotations

import argparse
import builtins
import json
import os
import runpy
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from nki_dist import arch, compat
from nki_dist.checks import checks_of
from nki_dist.cli.neuron_profile import put_on_path
from nki_dist.cli.shared.command import add_command, add_platform
from nki_dist.cli.shared.files import check_writable
from nki_dist.errors import Diagnostic, LaunchError, NkiError, free_name, simulator_error
from nki_dist.launcher.tracebacks import trimmed
from nki_dist.runtime.settings import (
    CHECK_VARIABLE,
    HOST_VARIABLE,
    LNC_VARIABLE,
    full_tracebacks,
)


def register(subparsers: Any) -> None:
    parser = add_command(subparsers, "run", "run an unmodified program", __doc__)
    parser.add_argument(
        "--json-errors",
        action="store_true",
        help="errors and warnings of the simulator as one line of JSON each, on stderr",
    )
    parser.add_argument(
        "--html-errors",
        metavar="FOLDER",
        help="an error of the simulator that ends the program, or a thread, also as a page there",
    )
    add_options(parser)
    parser.set_defaults(run=run, answers=False)  # what the program does is the answer


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say how to run a program, the program, and what is passed to it."""
    parser.set_defaults(json_errors=False, html_errors=None, answers=True)
    add_platform(parser)
    parser.add_argument(
        "--host", choices=("ray", "inprocess", "debug"), help="where simulated cores run"
    )
    parser.add_argument(
        "--release", metavar="NKI", help="0.6 or 0.7, whose kernels are accepted; any: both"
    )
    parser.add_argument(
        "--force", action="store_true", help="take the place of a real nki package, too"
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="PROGRAM is a module's dotted name"
    )
    parser.add_argument("program", metavar="PROGRAM", help="a script, or a module with -m")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace) -> int:
    """Run the program; a SystemExit of its own goes through.

    Raises:
        LaunchError: there is no such platform or release, or a real nki is in the way.
    """
    if arguments.json_errors:
        _print_as_json()
    if arguments.html_errors is not None:
        check_writable("--html-errors", arguments.html_errors, folder=True)
        _write_pages(Path(arguments.html_errors), not arguments.json_errors)
    try:
        prepare(arguments)
    except NkiError as error:
        if not arguments.json_errors:
            raise
        show(error)
        return 1
    try:
        return execute(arguments)
    except KeyboardInterrupt as error:
        show(error)
        return 130
    except Exception as error:  # whatever the program raises ends it, as in Python
        show(error)
        return 1


def prepare(arguments: argparse.Namespace) -> None:
    """Make this process one in which the program finds the simulator.

    Raises:
        LaunchError: there is no such platform or release, or a real nki is in the way.
    """
    platform = arch.get(arguments.platform) if arguments.platform else arch.from_environment()
    if arguments.lnc is not None and not 1 <= arguments.lnc <= platform.max_lnc:
        raise LaunchError(
            f"--lnc {arguments.lnc}; {platform.name} allows 1 to {platform.max_lnc}",
            code="lnc-range",
            numbers={"got": arguments.lnc, "least": 1, "most": platform.max_lnc},
        )
    if arguments.check:
        checks_of(arguments.check)
    settings = {
        arch.PLATFORM_VARIABLE: arguments.platform and arch.get(arguments.platform).instance,
        LNC_VARIABLE: arguments.lnc and str(arguments.lnc),
        HOST_VARIABLE: arguments.host,
        CHECK_VARIABLE: arguments.check,
    }
    os.environ.update({name: value for name, value in settings.items() if value})
    compat.install(force=arguments.force, release=arguments.release)
    compat.install_devices()  # not even --force replaces a real PyTorch device
    put_on_path()
    sys.argv = [arguments.program, *arguments.arguments]


def unreadable(arguments: argparse.Namespace) -> int:
    """2, with a message in the words of `python`, if the program can't be read; else 0."""
    if arguments.module:
        return 0
    path = os.path.abspath(arguments.program)
    try:
        with open(path, "rb"):
            return 0
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"nki-dist {arguments.command}: can't open file {path!r}: {reason}", file=sys.stderr)
        return 2


def execute(arguments: argparse.Namespace) -> int:
    """Run the program, and let out what it raises; 2 if it can't be read."""
    if status := unreadable(arguments):
        return status
    return run_module(arguments.program) if arguments.module else run_file(arguments.program)


def run_file(script: str) -> int:
    """Run a script as `__main__`."""
    path = os.path.abspath(script)
    with open(path, "rb") as file:
        source = file.read()
    sys.path[0:0] = [os.path.dirname(path)]
    code = compile(source, path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__file__, main.__loader__ = path, SourceFileLoader("__main__", path)
    main.__spec__ = main.__package__ = None
    vars(main).update(__builtins__=builtins, __cached__=None, __annotations__={})
    exec(code, vars(main))
    return 0


def run_module(name: str) -> int:
    """Run a module or package as `__main__`, as `python -m` does."""
    sys.path[0:0] = [os.getcwd()]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
    return 0


def show(error: BaseException) -> None:
    """Report an uncaught exception, leaving out how the program was started."""
    error.__traceback__ = _frames_of_program(error.__traceback__)
    if isinstance(error, Diagnostic) and not full_tracebacks():
        error.__traceback__ = trimmed(error)
    sys.excepthook(type(error), error, error.__traceback__)


def _frames_of_program(traceback: TracebackType | None) -> TracebackType | None:
    starters = (os.path.dirname(__file__) + os.sep, runpy.__file__)
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not name.startswith(starters) and not name.startswith("<frozen "):
            break
        traceback = traceback.tb_next
    return traceback


def _print_as_json() -> None:
    """Have Python show our errors and warnings as data, and others as ever."""
    warned = warnings.showwarning

    def show(found: Any, as_ever: Callable[[], Any]) -> None:
        if isinstance(found, Diagnostic):
            print(json.dumps(found.to_dict()), file=sys.stderr, flush=True)
        else:
            as_ever()

    def show_warning(message: Warning | str, *more: Any, **named: Any) -> None:
        show(message, partial(warned, message, *more, **named))

    _show_by(show)
    warnings.showwarning = show_warning


def _write_pages(folder: Path, tell: bool) -> None:
    """Have errors of ours written as pages, too, before they are shown; `tell` on stderr."""

    def write(error: Any, as_ever: Callable[[], Any]) -> None:
        found = simulator_error(error)
        if found is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = free_name(folder, found.code)
            found.write_report(path)
            if tell:
                print(f"nki-dist: wrote {path}", file=sys.stderr)
        as_ever()

    _show_by(write)


def _show_by(show: Callable[[Any, Callable[[], Any]], None]) -> None:
    """Have exceptions that end the program, or a thread, given to `show`, and what shows them."""
    shown, in_thread = sys.excepthook, threading.excepthook
    sys.excepthook = lambda kind, error, *more: show(error, partial(shown, kind, error, *more))
    threading.excepthook = lambda args: show(args.exc_value, partial(in_thread, args))
