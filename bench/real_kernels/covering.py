"""A pytest plugin: which of this project's tests have which constructs of `tests/foreign`.

`pytest -p bench.real_kernels.covering --covering-to FILE tests/isa ...` appends a line for each
construct, of the first test that has it: construct, tab, test. `table.write` takes them from there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nki_dist.compiler.compiled import Compiled
from tests.foreign import constructs


class Covering:
    """The hooks of a run."""

    def __init__(self, to: Path) -> None:
        self.to = to
        self.known: set[str] = set()
        self.new: set[str] = set()
        init = Compiled.__init__

        def made(compiled: Compiled, *args: Any, **kwargs: Any) -> None:
            init(compiled, *args, **kwargs)
            self.new |= constructs.of(compiled).keys() - self.known

        mock.patch.object(Compiled, "__init__", made).start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call":
            return
        if report.passed and self.new:
            self.known |= self.new
            with self.to.open("a") as file:
                file.writelines(f"{text}\t{report.nodeid}\n" for text in sorted(self.new))
        self.new = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--covering-to", metavar="FILE", required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Covering(Path(config.getoption("--covering-to"))), "covering")
