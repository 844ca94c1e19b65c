"""Leave no actors behind; Ray itself stays up for other test files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nki_dist.launcher.session import session


@pytest.fixture(scope="module", autouse=True)
def close_worlds() -> Iterator[None]:
    yield
    session().close()
