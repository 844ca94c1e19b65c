"""One Ray session for the tests that need one, and processes that need none."""

from types import SimpleNamespace

import pytest

from nki_dist.core_actor import payloads
from nki_dist.core_actor.folder import Folder
from nki_dist.launcher.session import session
from tests.transport.processes import Trio


@pytest.fixture(scope="package", autouse=True)
def close_session():
    yield
    session().close()


@pytest.fixture
def folder():
    made = Folder.alone()
    yield made
    made.close()


@pytest.fixture
def machine(monkeypatch):
    """Has as much memory as `left` says."""
    made = SimpleNamespace(left=1 << 40)
    monkeypatch.setattr(payloads, "left_bytes", lambda: made.left)
    monkeypatch.setattr(payloads, "map_writable", lambda handle: handle.memory)
    return made


@pytest.fixture
def trios(machine):
    """Makes a `Trio`, and closes it after the test."""
    made = []

    def make(**options):
        made.append(Trio(**options))
        return made[-1]

    yield make
    for trio in made:
        trio.close()


@pytest.fixture
def trio(trios):
    return trios()
