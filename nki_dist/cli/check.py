"""`nki-dist check`: what is wrong with a program's kernels, without running them.

Run a program as `nki-dist run` does, but only trace, check and dry-run its kernels: no arithmetic,
no simulated cores. The program gets results of the right shapes and dtypes that hold zeros, and
goes on after a kernel with mistakes. Then report every kernel with its errors and warnings.

Exit status: 0 if no kernel is wrong, 1 if one is or the program fails by itself, 2 for wrong
usage.

[options]

With --json, before PROGRAM or right after it, stdout holds the report and nothing else; what the
program prints goes to stderr. docs/checks.md describes the report and what a check can't see.

examples:
  nki-dist check matmul.py
  nki-dist check --json --platform trn3 train.py --steps 1
  nki-dist check --strict -m package.module
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any, Final

from nki_dist.cli import run as program
from nki_dist.cli.shared.command import add_command
from nki_dist.cli.shared.observed import printing_to_stderr
from nki_dist.errors import Diagnostic, LaunchError, split_location
from nki_dist.launcher.checking import Checked, Checker
from nki_dist.launcher.session import session
from nki_dist.launcher.suggestions import did_you_mean
from nki_dist.launcher.tracebacks import raised_at

VERSION: Final = 1
"""Of the JSON report; fields may be added to it, others don't change."""


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "check", "report mistakes of a program's kernels without running them", __doc__
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="also what published kernels do all the same; as --check strict",
    )
    program.add_options(parser)
    parser.set_defaults(run=run, unanswered=_unanswered)


def run(arguments: argparse.Namespace) -> int:
    """Check the program and print the report."""
    if arguments.strict:
        arguments.check = ",".join(filter(None, [arguments.check, "strict"]))
    as_json = _as_json(arguments)
    checker = Checker()
    with printing_to_stderr(as_json):
        try:
            status, ended = look_at(arguments, checker)
        except KeyboardInterrupt as error:
            program.show(error)
            return 130
        if status:  # the file can't be read, and that was said
            return status
    return _show(arguments, checker, ended)


def _as_json(arguments: argparse.Namespace) -> bool:
    """Whether --json was given, also right after the program, which isn't given it."""
    if arguments.arguments[:1] == ["--json"] and not arguments.json:
        del arguments.arguments[0]
        arguments.json = True
    return bool(arguments.json)


def _show(arguments: argparse.Namespace, checker: Checker, ended: BaseException | None) -> int:
    report = report_of(arguments.program, checker, ended)
    print(json.dumps(report, indent=2) if _as_json(arguments) else _text(report, checker))
    return 0 if report["ok"] else 1


def _unanswered(error: LaunchError, arguments: argparse.Namespace) -> int:
    """The program ended the process that looked at it: a report that says so, of no kernel."""
    if not _as_json(arguments):
        print(f"not checked: {error}")
        return 1
    return _show(arguments, Checker(), error)


def look_at(arguments: argparse.Namespace, checker: Checker) -> tuple[int, BaseException | None]:
    """Run a program whose launches a checker takes the place of.

    Returns:
        2 if the file can't be read, else 0; and what ended the program, if something did.
    """
    session().checker = checker
    ended: BaseException | None = None
    try:
        program.prepare(arguments)
        status = program.execute(arguments)
        if status:
            return status, None
    except SystemExit as error:
        ended = error if error.code not in (None, 0) else None
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # as Python does
    except Exception as error:
        ended = error
        if not checker.reported(error):
            program.show(error)
    _wait_for_threads()
    return 0, ended


# ---- the report ---------------------------------------------------------------------------------


def report_of(name: str, checker: Checker, ended: BaseException | None) -> dict[str, Any]:
    """The report as data; docs/checks.md says what its fields mean."""
    kernels = checker.kernels()
    exception = None if ended is None else _exception(checker, ended)
    wrong = not all(k.ok for k in kernels) or (
        exception is not None and not exception["after_placeholders"]
    )
    return {
        "version": VERSION,
        "program": name,
        "ok": not wrong,
        "kernels": [_kernel(k) for k in kernels],
        "exception": exception,
    }


def _kernel(kernel: Checked) -> dict[str, Any]:
    doubts = [(*split_location(location), why) for location, why in kernel.unchecked]
    return {
        "name": kernel.name,
        "file": kernel.file,
        "line": kernel.line,
        "launches": kernel.launches,
        "ok": kernel.ok,
        "diagnostics": [d.to_dict() for d in kernel.diagnostics],
        "unchecked": [{"file": file, "line": line, "why": why} for file, line, why in doubts],
    }


def _exception(checker: Checker, error: BaseException) -> dict[str, Any]:
    """What ended the program, which is no kernel's diagnostic."""
    if isinstance(error, Diagnostic):
        found = error.to_dict()
        placeholders = error.code == "result-unknown"
    else:
        file, line = split_location(raised_at(error))
        message = f"exit status {error.code}" if isinstance(error, SystemExit) else str(error)
        found = {"type": type(error).__name__, "message": message, "file": file, "line": line}
        placeholders = checker.hollows.given
        if meant := did_you_mean(error):
            found["hint"] = meant
    return {**found, "after_placeholders": placeholders}


# ---- for people ---------------------------------------------------------------------------------


def _text(report: dict[str, Any], checker: Checker) -> str:
    lines = [line for kernel in checker.kernels() for line in _lines(kernel)]
    kernels = report["kernels"]
    wrong = sum(not k["ok"] for k in kernels)
    count = "1 kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    lines.append(f"{count} launched, {wrong} wrong" if kernels else "no kernel was launched")
    exception = report["exception"]
    if exception is not None:
        where = f" at {exception['file']}:{exception['line']}" if exception["file"] else ""
        lines.append(f"the program ended with {exception['type']}{where}: {exception['message']}")
        if exception.get("hint"):
            lines.append(f"  hint: {exception['hint']}")
        if exception["after_placeholders"]:
            lines.append("  it had results without contents by then, so this may mean nothing")
    return "\n".join(lines)


def _lines(kernel: Checked) -> Iterator[str]:
    where = f" at {kernel.file}:{kernel.line}" if kernel.file else ""
    verdict = "ok" if kernel.ok else "wrong"
    yield f"{kernel.name}{where}: {verdict}"
    for found in kernel.diagnostics:
        severity = "warning" if isinstance(found, Warning) else "error"
        yield textwrap.indent(f"{severity}: {found}", "  ")
    for location, why in kernel.unchecked:
        yield f"  not checked{f' at {location}' if location else ''}: {why}"


# ---- the program --------------------------------------------------------------------------------


def _wait_for_threads() -> None:
    """A program isn't at its end before its threads are; those of pools only wait for work."""
    pools = sys.modules.get("concurrent.futures.thread")
    pooled = getattr(pools, "_threads_queues", {})
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon and thread not in pooled:
            thread.join()
