"""Every collective for many numbers of ranks, in one group and in groups of scattered ranks.

What the other files look at closely for a few worlds is compared here with NumPy for all of them:
2 to 8, 16 and 32 ranks, LNC 1 and 2, HBM and SBUF, different data everywhere.
"""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import VARIABLE
from tests.collectives import kernels as K
from tests.collectives.worlds import PerRank, mates, normal, run, same_on_cores, whole_numbers

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

SLOT = 5


def scattered(ranks, parts):
    """Groups of equal size whose ranks are neither neighbours nor in order."""
    order = np.random.default_rng(ranks).permutation(ranks)
    return [order[n::parts].tolist() for n in range(parts)]


SMALL = [(r, [list(range(r))]) for r in (2, 3, 4, 5, 6, 7, 8)]
SMALL += [(r, scattered(r, 2)) for r in (4, 6, 8)] + [(6, scattered(6, 3))]
LARGE = [(16, [list(range(16))]), (16, scattered(16, 4)), (32, scattered(32, 2))]
LARGE += [(32, [list(range(32))])]
CASES = SMALL + [pytest.param(*case, marks=pytest.mark.slow) for case in LARGE]
every_world = pytest.mark.parametrize(("ranks", "groups"), CASES)
lncs = pytest.mark.parametrize("lnc", [1, 2])
memories = pytest.mark.parametrize("where", ["hbm", "sbuf"])


@memories
@lncs
@every_world
def test_permutations(ranks, groups, lnc, where):
    """Along the groups as rings, and a ring with one pair missing."""
    pairs = [(a, b) for g in groups for a, b in zip(g, g[1:] + g[:1])]
    xs = normal(ranks, ranks, (3, 5), np.float32)
    for given in (pairs, pairs[1:]):
        outs = run(K.permute, ranks, xs, given, where, lnc=lnc)
        sources = {target: source for source, target in given}
        for rank in range(ranks):
            kept = np.full((3, 5), 77, np.float32)
            same_on_cores(outs[rank], xs[sources[rank]] if rank in sources else kept)


@memories
@lncs
@every_world
def test_rings(ranks, groups, lnc, where):
    xs, ys = (whole_numbers(seed, ranks, (4, 3), np.float32) for seed in (ranks, 100 + ranks))
    rg = ncc.ReplicaGroup(groups)
    size = len(groups[0])
    gathered = run(K.ring, ranks, xs, rg, size, 1, where, lnc=lnc)
    reduced = run(K.ring_reduce, ranks, xs, ys, rg, nl.minimum, where, lnc=lnc)
    for rank in range(ranks):
        group, place = mates(groups, rank)
        for other in group:
            for core in gathered[rank][0]:
                np.testing.assert_array_equal(core[other], xs[other])
        same_on_cores(reduced[rank], np.minimum(xs[group[place - 1]], ys[group[place - 1]]))


@memories
@lncs
@every_world
@pytest.mark.parametrize("gather", [True, False], ids=["all_gather_v", "all_to_all_v"])
def test_counts_known_at_run_time(gather, ranks, groups, lnc, where):
    size = len(groups[0])
    rng = np.random.default_rng(ranks)
    xs = normal(ranks, ranks, (4, 5), np.float32)
    metas = PerRank(
        np.stack(
            [rng.integers(0, SLOT + 1, size), rng.integers(0, 20 - SLOT, size), np.full(size, 99)]
        ).astype(np.uint32)
        for _ in range(ranks)
    )
    rg = ncc.ReplicaGroup(groups)
    outs = run(K.variable, ranks, xs, size * SLOT, metas, rg, gather, where, lnc=lnc)
    for rank in range(ranks):
        group, place = mates(groups, rank)
        want, table = np.full(size * SLOT, 77, np.float32), metas[rank].copy()
        for n, other in enumerate(group):
            count, start = metas[other][:2, 0 if gather else place].astype(int).tolist()
            want[n * SLOT : n * SLOT + count] = xs[other].reshape(-1)[start : start + count]
            table[2, n] = count
        same_on_cores(outs[rank][0], want[None])
        same_on_cores(outs[rank][1], table)


def usable(name, size):
    """Whether groups of that size can use an algorithm when they are told to."""
    return {"rdh": size & (size - 1) == 0, "kangaring": size % 2 == 0}.get(name, True)


FORCED = [
    pytest.param(name, ranks, groups, marks=pytest.mark.slow if ranks > 8 else ())
    for name in (a.name for a in ALGORITHMS)
    for ranks, groups in SMALL + LARGE
    if usable(name, len(groups[0]))
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
