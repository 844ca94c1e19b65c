"""Running tests on mutants: in copies of the tree, a few at a time, each with a time limit.

A copy has what git would take of the working tree, so that neither the tree nor its caches are
touched. Byte code is compiled once and none is written later: of the changed file it would have the
size and perhaps the second of the original, and Python would take one for the other.
"""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.mutants.areas import AREAS, Area, chosen_tests
from bench.mutants.sample import Changes, Mutant

KILLED, TIMEOUT, SURVIVED = "killed", "timeout", "survived"
_FIRST_LIMIT: Final = 1800.0  # seconds, for the unchanged tree


class Trial(NamedTuple):
    """What became of a mutant.

    Attributes:
        by: the test that failed, or what pytest said instead.
        seconds: how long its tests took.
    """

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


class Trials:
    """Copies of a tree, and the time that tests take on them.

    Args:
        changes: what makes the mutants.
        root: the tree.
        folder: for the copies; what is in it from before is deleted.
        copies: how many mutants are tried at a time.
    """

    def __init__(self, changes: Changes, root: Path, folder: Path, copies: int) -> None:
        self._changes = changes
        self._free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._copies = copies
        for number in range(copies):
            copy = folder / str(number)
            shutil.rmtree(copy, ignore_errors=True)
            _copy_tree(root, copy)
            self._free.put(copy)

    def run(self, mutants: Sequence[Mutant]) -> Iterator[Trial]:
        """Try each; results come as they are ready.

        Raises:
            RuntimeError: tests fail on the unchanged tree.
        """
        with ThreadPoolExecutor(self._copies) as pool:
            names = {mutant.area for mutant in mutants}
            areas = [area for area in AREAS if area.name in names]
            own = [[m for m in mutants if m.area == area.name] for area in areas]
            limits = dict(zip([area.name for area in areas], pool.map(self._limit, areas, own)))
            waiting = [pool.submit(self._try, m, limits[m.area]) for m in mutants]
            try:
                for done in as_completed(waiting):
                    yield done.result()
            finally:
                for future in waiting:
                    future.cancel()

    def _limit(self, area: Area, mutants: Sequence[Mutant]) -> float:
        """Seconds for the tests of a mutant: more than all of the area's take unchanged."""
        with self._copy() as copy:
            every = {name for m in mutants for name in chosen_tests(area, Path(m.path), copy)}
            outcome, by, seconds = _tested(copy, tuple(sorted(every)), _FIRST_LIMIT)
        if outcome != SURVIVED:
            raise RuntimeError(f"the tests of {area.name} fail without a change: {by}")
        return 30 + 2 * seconds

    def _try(self, mutant: Mutant, limit: float) -> Trial:
        area = next(area for area in AREAS if area.name == mutant.area)
        with self._copy() as copy:
            file = copy / mutant.path
            original = file.read_bytes()
            file.write_text(self._changes.text(mutant))
            for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
                stale.unlink()
            try:
                return Trial(
                    mutant, *_tested(copy, chosen_tests(area, Path(mutant.path), copy), limit)
                )
            finally:
                file.write_bytes(original)

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        """A copy of the tree that nobody else changes meanwhile."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


def _tested(copy: Path, chosen: tuple[str, ...], limit: float) -> tuple[str, str, float]:
    """Outcome, what ended it, seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    environment = os.environ | {
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "RAY_ADDRESS": "127.0.0.1:1",  # nobody answers: a test that wants Ray fails at once
    }
    began = time.monotonic()
    process = subprocess.Popen(
        [*command, "--tb=no", "-k", "not [ray] and not on_ray", *chosen],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own
        process.wait()
        return TIMEOUT, f"the limit of {limit:.0f} s", time.monotonic() - began
    seconds = time.monotonic() - began
    if process.returncode == 0:
        return SURVIVED, "", seconds
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = output.strip().splitlines()[-1:] or ["no output"]
    return KILLED, (failed or last)[0][:200], seconds


def _copy_tree(root: Path, copy: Path) -> None:
    for name in files(root):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, copy / name)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "nki_dist"], cwd=copy, check=True)


def files(root: Path) -> list[Path]:
    """Files of a working tree, from its root, that git has or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    names = {Path(name) for name in listed.stdout.split("\0") if name}
    return [name for name in names if (root / name).is_file()]  # not one that was deleted
