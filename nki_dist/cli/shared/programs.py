"""Timing programs, each by a worker of its own, for `nki-dist rank` and `nki-dist calibrate`.

What programs have in common is done once: workers are forks of this process, which imports what
the first of them needed, and kernels that compile to the same instructions are timed once.

Reports are kept by content: of the program, of every file it read, of this package, and of the
settings that shape launches. What else a program may depend on (the clock, other variables of the
environment, which files a folder has) isn't seen.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from nki_dist.cli.shared.timed import PACKAGE, TIMES, digests, timed
from nki_dist.cli.shared.workers import Worker, uninterrupted
from nki_dist.errors import LaunchError

VERSION: Final = 3  # of cached reports
CACHE_VARIABLE: Final = "NKI_DIST_CACHE"
_SETTINGS: Final = ("NKI_", "NEURON_")


@dataclass(frozen=True)
class Task:
    """A program to be timed.

    Attributes:
        program: its path.
        options: of `nki-dist run`, beside those for all programs.
        arguments: of the program.
    """

    program: str
    options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


class Programs:
    """Times programs.

    Args:
        options: of `nki-dist run`, for all of them.
        jobs: how many at once.
        timeout: seconds after which a program is ended.
        memory: bytes with which it is ended.
        cache: whether reports are cached.
        kernels: a folder where to leave the kernels that are launched.
    """

    def __init__(
        self,
        options: Sequence[str],
        jobs: int,
        timeout: float,
        memory: int,
        cache: bool,
        kernels: Path | None = None,
    ) -> None:
        self._options = list(options)
        self._jobs = jobs
        self._limits = timeout, memory
        self._kernels = kernels
        self._folder = _folder() if cache else None
        self._package = _package_digest() if cache else ""
        self._times: dict[str, list[float]] = {}  # times by digest

    def reports(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        """The report of each: `kernels` with their times, or `diagnostics` if it has none."""
        found = dict(self.each(tasks))
        return [found[n] for n in range(len(tasks))]

    def each(self, tasks: Sequence[Task]) -> Generator[tuple[int, dict[str, Any]], None, None]:
        """The number of each task and its report, as they come; all ends with the iterator."""
        waiting = deque(enumerate(tasks))
        running: dict[Worker, tuple[int, Path | None]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    n, task = waiting.popleft()
                    entry = self._entry(task)
                    found = None if entry is None else read_cached(entry)
                    if found is not None:
                        yield n, found
                        continue
                    with uninterrupted():
                        worker = Worker(partial(self._timed, task), *self._limits)
                        running[worker] = n, entry
                for worker, over in Worker.wait([*running]):
                    with uninterrupted():
                        n, entry = running.pop(worker)
                        found = self._report(worker, over, entry)
                    yield n, found
        finally:
            for worker in running:
                worker.end()

    def _timed(self, task: Task) -> dict[str, Any]:
        """What a worker does."""
        words = [*self._options, *task.options, task.program, *task.arguments]
        return timed(words, self._kernels, self._times)

    def _report(
        self, worker: Worker, over: LaunchError | None, entry: Path | None
    ) -> dict[str, Any]:
        try:
            found: dict[str, Any] = worker.answer(over)
        except LaunchError as error:
            return {"kernels": [], "diagnostics": [error.to_dict()]}
        for kernel in found["kernels"]:
            self._times[kernel["digest"]] = [kernel[end] for end in TIMES]
        for name in found.pop("modules"):
            with suppress(ImportError):
                importlib.import_module(name)
        if entry is not None:
            write_cached(entry, found)
        return found

    # ---- cached reports --------------------------------------------------------------------------

    def _entry(self, task: Task) -> Path | None:
        """The file of a program's cached report."""
        if self._folder is None:
            return None
        path = Path(task.program).resolve()
        options = [*self._options, *task.options]
        settings = sorted(
            (name, value)
            for name, value in os.environ.items()
            if name.startswith(_SETTINGS) and name != CACHE_VARIABLE
        )
        versions = [sys.version, *(metadata.version(n) for n in ("numpy", "ml_dtypes"))]
        told = [VERSION, self._package, versions, options, settings, str(path), task.arguments]
        told.append(os.getcwd())
        return self._folder / f"{_digest(json.dumps(told))}.json"


def _folder() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nki_dist" / "rank"


def _package_digest() -> str:
    total, package = sha256(), Path(PACKAGE)
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.txt")]):
        total.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def read_cached(entry: Path) -> dict[str, Any] | None:
    """A report that is as it was written, and whose files are as they were."""
    try:
        digest, text = entry.read_text("utf-8").split("\n", 1)
    except (OSError, ValueError):  # none, or a damaged one: it is made anew
        return None
    if digest != _digest(text):
        return None
    found: dict[str, Any] = json.loads(text)
    files = found["files"]
    return found if files and digests(list(files)) == files else None


def write_cached(entry: Path, report: dict[str, Any]) -> None:
    text = json.dumps(report)
    new = entry.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(f"{_digest(text)}\n{text}", encoding="utf-8")
            os.replace(new, entry)  # readers see all of it or none
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        print(f"nki-dist: reports aren't kept in {entry.parent}: {error}", file=sys.stderr)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
