"""Kernels of our own with the constructs of published ones that no other test has."""

from __future__ import annotations

import pytest

from nki_dist.errors import CompilerMayRejectWarning
from tests.foreign import constructs, table
from tests.foreign.instructions import BUILT
from tests.foreign.kernels import KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel(name):
    compiled = KERNELS[name].run()
    refused = [w for w in compiled.warnings if isinstance(w, CompilerMayRejectWarning)]
    assert refused == []


def test_no_construct_is_missing():
    found = set()
    for written in KERNELS.values():
        found |= constructs.of(written.compile()).keys()
    others = [c for c in table.constructs() if c.partition(":")[0].partition(".")[0] not in BUILT]
    assert sorted(set(others) - found) == []
