"""One Fingerprinter for many tests: what it remembers of one kernel must not touch another."""

from __future__ import annotations

import pytest

from nki_dist.launcher.cachekey import Fingerprinter


@pytest.fixture(scope="module")
def keys() -> Fingerprinter:
    return Fingerprinter()
