"""bench.migrate counts its share itself, and has a bar."""

from __future__ import annotations

import pytest

pytest.importorskip("libcst")

from bench.migrate.__main__ import APART, DOCS, OTHER, SAMPLES, Row, shares, table
from bench.migrate.replay import instances
from nki_dist.language.grid import Nc, SpmdDim


def rows(*outcomes, group=SAMPLES, beta1=True):
    return [Row(group, f"{n}.py", "f", beta1, outcome) for n, outcome in enumerate(outcomes)]


def test_shares_and_their_bar():
    found = rows("same", "same", "same", APART, OTHER) + rows("same", group=DOCS, beta1=False)
    assert [(s.same, s.apart, s.all) for s in shares(found)] == [(3, 1, 5), (1, 0, 1), (4, 1, 6)]
    assert all(s.met for s in shares(found))
    assert "all: 5 of 6 the same without a hand (83%, bar 80%)" in table(found)
    assert [s.met for s in shares(found + rows("out of time"))] == [False, True, False]
    assert [s.met for s in shares(rows("same", beta1=False))] == [True, True, True], "0.6's"


@pytest.mark.parametrize(
    "grid, sizes",
    [
        (None, None),
        (2, None),
        ((2, 4), (2, 4)),
        ((SpmdDim((3,)),), (3,)),
        ((SpmdDim((2, Nc(2))), 4), None),
        ((Nc(2),), None),
    ],
)
def test_recorded_grids(grid, sizes):
    assert instances(grid) == sizes
