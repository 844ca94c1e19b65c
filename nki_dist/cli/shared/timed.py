"""A program's simulated time, for `nki-dist rank`, `calibrate` and `mcp`.

The program is looked at as by `nki-dist check`. This process is then no longer good for another.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import nki_dist
from nki_dist.cli import check, profile
from nki_dist.cli import run as program
from nki_dist.errors import LaunchError, NkiError
from nki_dist.launcher.tally import Seen, TimingChecker

PACKAGE: Final = os.path.dirname(os.path.abspath(nki_dist.__file__))
TIMES: Final = ("device_us", "low_us", "high_us")


def timed(
    words: Sequence[str], folder: Path | None = None, cached: Mapping[str, Sequence[float]] = {}
) -> dict[str, Any]:
    """Look at a program.

    Args:
        words: options of `nki-dist run`, the program and its arguments.
        folder: gets every kernel it launched as a file, to be timed again under other figures;
            `kernels` then say which, and what else their time depends on.
        cached: times (`TIMES`) by digest, of kernels that were timed before.

    Returns:
        its `kernels` with their times, `diagnostics` (what is wrong with it), `files` it read (with
        their contents' digests), and the `modules` of this package that it needed.
    """
    parser = argparse.ArgumentParser("nki-dist rank")
    program.add_options(parser)
    parser.set_defaults(command="rank")
    arguments = parser.parse_args(words)
    opened, before = _Opened(), {*sys.modules}
    sys.addaudithook(opened)
    found = _look(arguments, folder, cached)
    opened.over = True
    found["files"] = digests([*opened.names, *_sources(before)])
    found["modules"] = [
        name for name in sys.modules if name.startswith("nki_dist.") and name not in before
    ]
    return found


def _look(
    arguments: argparse.Namespace, folder: Path | None, cached: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Times and mistakes of a program."""
    checker = TimingChecker()
    if not arguments.module and profile.is_compiled(arguments.program):
        try:
            seen = profile.of_file(arguments.program)
            return {"kernels": [_kernel(seen, folder, cached)], "diagnostics": []}
        except NkiError as error:
            return {"kernels": [], "diagnostics": [error.to_dict()]}
    status, ended = check.look_at(arguments, checker)
    if status:
        return _refused(f"can't read {arguments.program}")
    looked = check.report_of(arguments.program, checker, ended)
    diagnostics = [d for kernel in looked["kernels"] for d in kernel["diagnostics"]]
    wrong = [d for d in diagnostics if d["severity"] == "error"]
    if (raised := looked["exception"]) is not None:
        wrong.append({**_ended(ended).to_dict(), **raised})
    launches = checker.tally.launches()
    if not wrong and checker.untimed:
        wrong.append(_untimed(checker).to_dict())
    if not wrong and not launches:
        return _refused("the program launched no kernel")
    kernels = [] if wrong else [_kernel(seen, folder, cached) for seen in launches]
    return {"kernels": kernels, "diagnostics": wrong}


def _ended(error: BaseException | None) -> LaunchError:
    """What an exception means that ended a program, where it has no code of its own."""
    exits, memory = isinstance(error, SystemExit), isinstance(error, MemoryError)
    return LaunchError(
        str(error),
        code="program-ended" if exits else "program-memory" if memory else "program-raised",
    )


def _refused(message: str) -> dict[str, Any]:
    refusal = LaunchError(message, code="rank-program")
    return {"kernels": [], "diagnostics": [refusal.to_dict()]}


def _untimed(checker: TimingChecker) -> LaunchError:
    return LaunchError(
        f"how long {', '.join(checker.untimed)} takes depends on results of other kernels, which "
        "weren't computed; time a program that passes it the array",
        code="spec-contents",
    )


def _kernel(
    seen: Seen, folder: Path | None, cached: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Of one kernel; `launches` of them took as long each."""
    digest = seen.digest
    times = cached.get(digest)
    if times is None:
        p = seen.profile()
        times = [getattr(p, end) for end in TIMES]
    saved: dict[str, Any] = {}
    if folder is not None:
        handle, saved["file"] = tempfile.mkstemp(dir=folder)
        os.close(handle)
        seen.compiled.save(saved["file"])
        saved |= {"ranks": seen.topology.ranks, "lnc": seen.topology.lnc}
        saved |= {"algorithm": seen.algorithm, "trips": seen.trips}
    return {
        **saved,
        "kernel": seen.compiled.kernel,
        "platform": seen.topology.arch.instance,
        "cores": len(seen.trips),
        "launches": seen.count,
        "digest": digest,
        **dict(zip(TIMES, times, strict=True)),
    }


# ---- what the result depends on -----------------------------------------------------------------


class _Opened:
    """An audit hook that keeps the names of files opened for reading."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        self.over = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self.over:
            return
        name, mode, _ = arguments
        written = isinstance(mode, str) and set(mode) & {"w", "a", "x"}
        if isinstance(name, (str, bytes)) and not written:
            self.names[os.fsdecode(name)] = None


def _sources(before: Collection[str]) -> list[str]:
    """Of modules that weren't there before; Python may have read their compiled form instead."""
    modules = [sys.modules.get(name) for name in {*sys.modules}.difference(before)]
    files = (getattr(m, "__file__", None) for m in modules if isinstance(m, ModuleType))
    return [name for name in files if isinstance(name, str)]


def digests(names: Sequence[str]) -> dict[str, str]:
    """SHA-256 of files' contents by absolute path; what is installed counts by its version."""
    installed = [os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, PACKAGE)]
    others = tuple(f"{p}/" for p in ("/proc", "/sys", "/dev", "/etc", "/usr", *installed))
    found: dict[str, str] = {}
    for name in names:
        try:
            path = os.path.realpath(name)
            if path.startswith(others) or "/__pycache__/" in path or not os.path.isfile(path):
                continue
            found[path] = sha256(Path(path).read_bytes()).hexdigest()
        except (OSError, ValueError):  # gone, or never a file's name
            continue
    return found
