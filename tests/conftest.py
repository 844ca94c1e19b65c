"""For all tests: what a developer keeps running (`nki-dist cluster`) takes no part in them."""

from __future__ import annotations

import gc
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)  # programs of tests are interrupted


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-pages",
        action="store_true",
        help="write the outputs in pages anew (tests/pages.py)",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The tests themselves, half a million objects, stay: a pass of the collector skips them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_pool():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NKI_DIST_CLUSTER", "off")
        yield
