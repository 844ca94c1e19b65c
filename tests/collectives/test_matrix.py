"""Every collective for many numbers of ranks, in one group and in groups of scattered ranks.

What the other files look at closely for a few worlds is compared here with NumPy for all of them:
2 to 8, 16 and 32 ranks, LNC 1 and 2, HBM and SBUF, different data everywhere.
"""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import VARIABLE
from nki_dist.collectives.question import Question, RankLayout
from tests.collectives import kernels as K
from tests.collectives.worlds import mates, run, same_on_cores, whole_numbers

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]


def scattered(ranks, parts):
    """Groups of equal size whose ranks are neither neighbours nor in order."""
    order = np.random.default_rng(ranks).permutation(ranks)
    return [order[n::parts].tolist() for n in range(parts)]


SMALL = [(r, [list(range(r))]) for r in (2, 3, 4, 5, 6, 7, 8)]
SMALL += [(r, scattered(r, 2)) for r in (4, 6, 8)] + [(6, scattered(6, 3))]
LARGE = [(16, [list(range(16))]), (16, scattered(16, 4)), (32, scattered(32, 2))]
LARGE += [(32, [list(range(32))])]


def usable(algorithm, groups):
    """Whether groups can use it when they are told to: all can, if it says of no need."""
    trn2 = arch.get("trn2")
    layout = RankLayout.of(trn2, lnc=2)
    asked = [Question("all_gather", 4, tuple(group), layout, trn2) for group in groups]
    return not algorithm.needs or all(map(algorithm.fits, asked))


FORCED = [
    pytest.param(a.name, ranks, groups, marks=pytest.mark.slow if ranks > 8 else ())
    for a in ALGORITHMS
    for ranks, groups in SMALL + LARGE
    if usable(a, groups)
]


@pytest.mark.parametrize(("name", "ranks", "groups"), FORCED)
def test_every_algorithm(name, ranks, groups, monkeypatch):
    """Chunks don't divide evenly: the number of elements is odd."""
    monkeypatch.setenv(VARIABLE, name)
    size, rg = len(groups[0]), ncc.ReplicaGroup(groups)
    xs = whole_numbers(ranks, ranks, (3, 7), np.float32)
    blocks = whole_numbers(ranks + 1, ranks, (size, 7), np.float32)
    reduced = run(K.all_reduce, ranks, xs, rg, nl.add, "sbuf", lnc=2)
    scattered_ = run(K.reduce_scatter, ranks, blocks, rg, nl.add, size, lnc=2)
    gathered = run(K.all_gather, ranks, xs, rg, size, "sbuf", 1)
    for rank in range(ranks):
        group, place = mates(groups, rank)
        same_on_cores(reduced[rank], np.sum([xs[g] for g in group], axis=0))
        same_on_cores(scattered_[rank], np.sum([blocks[g] for g in group], axis=0)[place][None])
        same_on_cores(gathered[rank], np.concatenate([xs[g] for g in group], axis=1))
