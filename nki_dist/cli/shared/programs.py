"""Timing programs, each in a process of its own, for `nki-dist rank` and `nki-dist calibrate`.

Reports are kept by content: of the program, of every file it read, of this package, and of the
settings that shape launches. What else a program may depend on (the clock, other variables of the
environment, which files a folder has) isn't seen.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from nki_dist.cli.shared.timed import PACKAGE, digests
from nki_dist.errors import LaunchError

VERSION: Final = 1  # of the reports that are kept
CACHE_VARIABLE: Final = "NKI_DIST_CACHE"
_SETTINGS: Final = ("NKI_", "NEURON_")
_NO_SETTINGS: Final = (CACHE_VARIABLE,)
_TIMES: Final = ("device_us", "low_us", "high_us")
_KERNEL: Final[dict[str, Any]] = {
    "kernel": str,
    "launches": int,
    **dict.fromkeys(_TIMES, (int, float)),
}
_DIAGNOSTIC: Final[dict[str, Any]] = {"type": str, "message": str}


@dataclass(frozen=True)
class Task:
    """A program to be timed.

    Attributes:
        program: its path.
        options: of `nki-dist run`, beside those for all programs.
        folder: where to leave the kernels it launched; such a report isn't kept.
    """

    program: str
    options: tuple[str, ...] = ()
    folder: Path | None = None


class Programs:
    """Times programs.

    Args:
        options: of `nki-dist run`, for all of them.
        jobs: how many at once.
        timeout: seconds after which a program is given up.
        cache: whether reports are kept and found again.
    """

    def __init__(self, options: Sequence[str], jobs: int, timeout: float, cache: bool) -> None:
        self._options = list(options)
        self._jobs = jobs
        self._timeout = timeout
        self._folder = _folder() if cache else None
        self._package = _package_digest()

    def reports(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        """The report of each: `kernels` with their times, or `diagnostics` if it has none."""
        with ThreadPoolExecutor(self._jobs) as pool:
            return list(pool.map(self._report, tasks))

    def _report(self, task: Task) -> dict[str, Any]:
        entry = self._entry(task)
        found = None if entry is None else _kept(entry)
        if found is None:
            found, lasting = self._run(task)
            if entry is not None and lasting:
                _keep(entry, found)
        return found

    def _run(self, task: Task) -> tuple[dict[str, Any], bool]:
        """The report, and whether another run would give the same."""
        try:
            folder = tempfile.TemporaryDirectory(prefix="nki-dist-")
        except OSError as error:
            return _failed(f"there is no room for its report: {error}"), False
        with folder as made:
            report = Path(made) / "report.json"
            command = [sys.executable, "-m", "nki_dist.cli.shared.timed", str(report)]
            command += [*self._options, *task.options]
            if task.folder is not None:
                command += ["--launches", str(task.folder)]
            try:
                ended = subprocess.run(
                    [*command, task.program],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    timeout=self._timeout,
                )
            except subprocess.TimeoutExpired:
                return _failed(
                    f"the program made no end within {self._timeout:g} s; --timeout sets the limit"
                ), False
            if report.is_file():
                found: dict[str, Any] = json.loads(report.read_text("utf-8"))
                return found, True
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        said = f": {last}" if last else ""
        return _failed(f"its process ended with status {ended.returncode}{said}"), False

    # ---- reports that are kept ------------------------------------------------------------------

    def _entry(self, task: Task) -> Path | None:
        """The file that keeps a program's report."""
        if self._folder is None or task.folder is not None:
            return None
        path = Path(task.program).resolve()
        options = [*self._options, *task.options]
        settings = sorted(
            (name, value)
            for name, value in os.environ.items()
            if name.startswith(_SETTINGS) and name not in _NO_SETTINGS
        )
        versions = [sys.version, *(metadata.version(n) for n in ("numpy", "ml_dtypes"))]
        told = [VERSION, self._package, versions, options, settings, str(path), os.getcwd()]
        return self._folder / f"{sha256(json.dumps(told).encode()).hexdigest()}.json"


def _failed(message: str) -> dict[str, Any]:
    error = LaunchError(message, code="rank-program")
    return {"kernels": [], "diagnostics": [error.to_dict()], "files": {}}


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


def _kept(entry: Path) -> dict[str, Any] | None:
    """A report whose files are all as they were."""
    try:
        found: dict[str, Any] = json.loads(entry.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):  # none, or a damaged one: it is made anew
        return None
    if not _is_report(found):
        return None
    files = found["files"]
    return found if files and digests(list(files), set()) == files else None


def _is_report(found: Any) -> bool:
    """Whether this is what `timed` writes, which others rely on."""
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        return False
    for name, fields in (("kernels", _KERNEL), ("diagnostics", _DIAGNOSTIC)):
        rows = found.get(name)
        if not isinstance(rows, list):
            return False
        for row in rows:
            if not isinstance(row, dict):
                return False
            if any(not isinstance(row.get(field), kind) for field, kind in fields.items()):
                return False
    return all(math.isfinite(row[end]) for row in found["kernels"] for end in _TIMES)


def _keep(entry: Path, report: dict[str, Any]) -> None:
    new = entry.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(json.dumps(report), encoding="utf-8")
            os.replace(new, entry)  # readers see all of it or none
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        print(f"nki-dist: reports aren't kept in {entry.parent}: {error}", file=sys.stderr)
