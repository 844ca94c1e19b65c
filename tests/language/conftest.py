"""Fixtures for tests of the language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nki_dist import arch
from nki_dist.compiler.trace import Trace
from nki_dist.isa.spec import tracing_with


@pytest.fixture
def trace() -> Iterator[Trace]:
    """An active trace for trn2, so that `nl` works outside a kernel."""
    recorded = Trace("test", arch.get("trn2"))
    with tracing_with(recorded):
        yield recorded
