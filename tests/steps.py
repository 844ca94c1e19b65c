"""How far a long run is, in lines that a log keeps, too: `pytest -p tests.steps`, by `make test`.

Instead of a dot for each of thousands of tests there is a line for each twentieth of them, with the
minutes so far and the file that is at work; a test that fails is named at once. Tests of several
processes (`-n 2`) are counted together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

STEPS = 20


class Steps:
    """Of one run; `reporter` writes lines."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        self._begun = time.monotonic()
        self._tests = self._done = 0

    def pytest_sessionstart(self) -> None:
        self._reporter.write_line("looking for tests ...")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._found(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        if not self._tests:  # each process finds all
            self._found(len(ids))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self) -> Iterator[None]:
        category, _, word = yield
        return category, "", word  # no dot

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._line(f"FAILED {report.nodeid} ({report.when})")

    def pytest_runtest_logfinish(self, location: tuple[str, int | None, str]) -> None:
        before, self._done = self._done, self._done + 1
        if self._done * STEPS // self._tests > before * STEPS // self._tests:
            self._line(location[0])

    def _found(self, tests: int) -> None:
        self._tests = tests
        self._line(f"{tests:,} tests")

    def _line(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        share = 100 * self._done // max(self._tests, 1)
        self._reporter.write_line(f"{share:3} %  {minutes:2}:{seconds:02}  {text}", flush=True)


@pytest.hookimpl(trylast=True)  # when there is a reporter
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.register(Steps(reporter), "steps")
