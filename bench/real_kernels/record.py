"""A pytest plugin that writes down, for every test, what came of it and which kernels took part.

One JSON object per line: test, outcome (passed, failed, skipped, timeout), seconds of host time,
reason, kernels as [file, name]: functions that were launched, kernels they called, and functions
whose instructions were in the programs. Also chooses a sample of the tests of a run.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench.real_kernels import packed, shims, tracing
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import NkiWarning
from nki_dist.launcher.kernel import Kernel
from nki_dist.launcher.session import CompileCache

TIMED_OUT = "Timeout"  # how pytest-timeout's message begins


class Recorder:
    """Which kernels took part since `take` was last called."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._of_compiled: dict[str, set[tuple[str, str]]] = {}

    def install(self) -> None:
        """Look on when kernels are compiled or found again, and when one calls another."""
        tracing.install()
        get, call = CompileCache.get, Kernel.__call__

        def watched_get(cache: CompileCache, function: Callable, *args: Any) -> Any:
            before, self._seen = self._seen, {_name(function)}
            try:
                name, compiled = get(cache, function, *args)
                took_part = self._of_compiled.setdefault(name, self._seen | _emitters(compiled))
                self._seen = set(took_part)
                return name, compiled
            finally:
                self._seen |= before

        def watched_call(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
            self._seen.add(_name(kernel.fn))
            return call(kernel, *args, **kwargs)

        mock.patch.object(CompileCache, "get", watched_get).start()
        mock.patch.object(Kernel, "__call__", watched_call).start()

    def take(self) -> list[tuple[str, str]]:
        seen, self._seen = self._seen, set()
        return sorted(seen)


def _name(function: Any) -> tuple[str, str]:
    code = getattr(inspect.unwrap(function), "__code__", None)  # Beta 1 kernels are wrapped
    return (code.co_filename, code.co_name) if code else ("", repr(function))


def _emitters(compiled: Compiled) -> set[tuple[str, str]]:
    found = {(file, name) for p in compiled.programs for file, _, name in p.locations}
    return {(file, name) for file, name in found if file != __file__}


# ---- pytest --------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("real kernels")
    group.addoption("--record-to", metavar="FILE", help="JSON lines are appended to it")
    group.addoption("--record-sample", type=int, default=0, metavar="N", help="0: all tests")
    group.addoption("--record-varied", action="store_true", help="a sample with many parameters")
    group.addoption("--record-budget", type=float, metavar="S", help="no new test after S seconds")
    group.addoption("--record-library", action="store_true", help="these are nki-library's tests")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.record_library:
        shims.install()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Record(config), "record")


class Record:
    """The hooks of one run."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.recorder = Recorder()
        self.recorder.install()
        self.started = 0.0
        self.row: dict[str, Any] = {}
        self.warned: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        if self.config.getoption("record_library"):
            shims.before_collection()
            packed.install()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """A sample of the smaller half, the same every time; small ones first, for the budget."""
        if self.config.getoption("record_library"):
            shims.prepare_orchestrator()
        size = self.config.getoption("record_sample")
        collected = len(items)
        ready = [item for item in items if not item.get_closest_marker("skip")]
        ready.sort(key=_size)
        if size and len(ready) > 2 * size:
            ready = ready[: len(ready) // 2]
        if self.config.getoption("record_varied"):
            kept = varied(ready, size)
        else:
            kept = random.Random(0).sample(ready, min(size or len(ready), len(ready)))
            kept.sort(key=_size)
        self.config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept
        self._write({"collected": collected, "kept": len(kept)})
        self.started = time.monotonic()  # collecting takes minutes where parameters are combined

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.recorder.take()
        self.row = {"test": nodeid, "outcome": "passed", "seconds": 0.0, "reason": ""}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.row["seconds"] += report.duration
        if report.outcome != "passed" and self.row["outcome"] == "passed":
            reason = _reason(report)
            timed_out = report.failed and TIMED_OUT in reason
            self.row |= {"outcome": "timeout" if timed_out else report.outcome, "reason": reason}

    def pytest_warning_recorded(self, warning_message: Any) -> None:
        if isinstance(warning_message.message, NkiWarning):
            self.warned.add(warning_message.message.code)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        warned, self.warned = sorted(self.warned), set()
        self._write(self.row | {"kernels": self.recorder.take(), "warnings": warned})

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        budget = self.config.getoption("record_budget")
        if budget and time.monotonic() - self.started > budget:
            item.session.shouldstop = "the budget is used up"

    def _write(self, row: dict[str, Any]) -> None:
        path = self.config.getoption("record_to")
        if path:
            label = {"file": os.environ.get("REAL_KERNELS_FILE", "")}
            with Path(path).open("a") as file:
                file.write(json.dumps(label | row) + "\n")


def varied(items: Sequence[Any], count: int) -> list[Any]:
    """Tests whose names have many different words in all, the smaller ones where words are equal.

    Names of parametrized tests are made of their parameters: dtypes, modes, flags. In the order in
    which they were chosen, so that a budget cuts off those that add least.
    """
    left, words, kept = list(items), set(), []
    while left and len(kept) < count:
        gains = [len(_words(item.name) - words) for item in left]
        best = left.pop(max(range(len(left)), key=lambda n: (gains[n], -n)))
        words |= _words(best.name)
        kept.append(best)
    return kept


def _words(name: str) -> set[str]:
    """Parts of a test's name that aren't sizes: flags are 0 or 1."""
    parts = re.split(r"[\[\]_,. ]", name)
    return {part for part in parts if not re.search(r"\d{2,}$", part)}


def _size(item: pytest.Item) -> int:
    """About how large the tensors of a test are: the product of the numbers in its name."""
    numbers = (int(n) for n in re.findall(r"\d+", item.name))
    return prod(n for n in numbers if n > 8)


def _reason(report: pytest.TestReport) -> str:
    """The last line that begins with E, which names the error, or why it was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:300]
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash else str(report.longrepr))[:300]
