"""`pytest -p nki_dist.pytest_plugin`: unmodified test suites of NKI kernels on the simulator.

Makes `nki` and its kin resolve to the simulator before any conftest is imported, sets the platform,
LNC degree, host and checks for all launches, and offers worlds to tests:

- `nki_world`: a `nki.World`; `@pytest.mark.nki_world(ranks=4, lnc=2, ...)` gives its arguments.
- `nki_ranks`: how many ranks; a test that uses it or `nki_world` runs once for each number of
  `--nki-ranks`, unless its mark says how many.

Invariant: a world of a test is closed after it, whatever happens in it, and the environment is put
back when pytest ends. Not done here: comparing results; tests have their own tolerances.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from nki_dist import World, arch, compat
from nki_dist.cli.shared.files import check_writable
from nki_dist.errors import NkiError, free_name, simulator_error
from nki_dist.runtime.settings import (
    CHECK_VARIABLE,
    HOST_VARIABLE,
    HOSTS,
    LNC_VARIABLE,
    default_check,
)

_MARK = "nki_world"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nki_dist", "simulated NeuronCores")
    group.addoption("--nki-platform", metavar="NAME", help="trn1, trn2 or trn3")
    group.addoption(
        "--nki-lnc", type=int, metavar="N", help="cores of kernels without a grid, and of worlds"
    )
    group.addoption("--nki-host", choices=HOSTS, help="where simulated cores run")
    group.addoption(
        "--nki-check", metavar="POLICY", help="what kernels are checked against, as of World"
    )
    group.addoption(
        "--nki-ranks", type=_numbers, default=[1], metavar="N,...", help="ranks of worlds"
    )
    group.addoption(
        "--nki-report",
        metavar="FOLDER",
        help="of each test that an error of the simulator ends, a page there",
    )
    group.addoption(
        "--nki-force", action="store_true", help="take the place of a real nki package, too"
    )


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: positive numbers, such as 1,2,4")
    return [int(part) for part in parts]


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftests are imported: they import nki, too."""
    options = early_config.known_args_namespace
    settings = {
        HOST_VARIABLE: options.nki_host,
        CHECK_VARIABLE: options.nki_check,
        LNC_VARIABLE: options.nki_lnc and str(options.nki_lnc),
        arch.PLATFORM_VARIABLE: options.nki_platform,
    }
    environment = pytest.MonkeyPatch()
    early_config.add_cleanup(environment.undo)
    for name, value in settings.items():
        if value:
            environment.setenv(name, value)
    try:
        check_writable("--nki-report", options.nki_report, folder=True)
        arch.from_environment()
        default_check()
        compat.install(force=options.nki_force)
    except NkiError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{_MARK}(ranks=1, lnc=1, ...): arguments of the nki.World of this test"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "nki_ranks" in metafunc.fixturenames:
        ranks = _marked(metafunc.definition).get("ranks")
        numbers = metafunc.config.getoption("nki_ranks") if ranks is None else [ranks]
        metafunc.parametrize("nki_ranks", numbers, ids=[f"ranks{n}" for n in numbers])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Write what ended a test, and say where."""
    outcome = yield
    folder = item.config.getoption("nki_report")
    error = simulator_error(call.excinfo and call.excinfo.value) if folder else None
    if error is not None and outcome.get_result().failed:
        Path(folder).mkdir(parents=True, exist_ok=True)
        path = free_name(Path(folder), item.nodeid)
        error.write_report(path)
        outcome.get_result().sections.append(("nki_dist report", str(path)))


@pytest.fixture
def nki_world(request: pytest.FixtureRequest, nki_ranks: int) -> Iterator[World]:
    """A world of `nki_ranks` ranks, as the test's mark and the command line describe it."""
    options = {"lnc": request.config.getoption("nki_lnc") or 1, **_marked(request.node)}
    try:
        world = World(**{**options, "ranks": nki_ranks})
    except TypeError as error:
        raise pytest.UsageError(
            f"@pytest.mark.{_MARK} of {request.node.nodeid}: {error}; it takes what World takes: "
            f"{', '.join(inspect.signature(World).parameters)}"
        ) from None
    with world:
        yield world


def _marked(node: Any) -> dict[str, Any]:
    """Arguments of the nearest mark."""
    mark = node.get_closest_marker(_MARK)
    if mark is not None and mark.args:
        raise pytest.UsageError(f"@pytest.mark.{_MARK} takes keywords only, got {mark.args}")
    return dict(mark.kwargs) if mark is not None else {}
