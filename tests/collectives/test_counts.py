"""Collectives of a group are counted in each launch, and groups apart from each other."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError

RANKS, SHAPE = 4, (3, 5)
ALL = ncc.ReplicaGroup([list(range(RANKS))])


@nki.jit
def around(x, places):
    """Twice to the next rank; between, a copy from a place that each rank names."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    ncc.collective_permute_implicit([[a]], [[b]], ALL)
    place = nisa.register_alloc(nl.load(places))
    nisa.tensor_copy(dst=a[:, 0:1], src=b[:, nl.ds(place, 1)])
    nisa.tensor_copy(dst=a[:, 1:], src=b[:, 1:])
    ncc.collective_permute_implicit([[a]], [[b]], ALL)
    nl.store(out, b)
    return out


@nki.jit
def pair_and_all(x):
    """Ranks 0 and 1 exchange theirs, then all add."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=mine, src=x)
    ncc.collective_permute([x], [mine], [(0, 1), (1, 0)])
    ncc.all_reduce([mine], [out], ALL, nl.add)
    return out


def values():
    rng = np.random.default_rng(6)
    return [rng.integers(-9, 9, SHAPE).astype(np.float32) for _ in range(RANKS)]


def test_a_launch_after_one_that_failed_between_two_collectives():
    """Some ranks have begun more than others: the next launch counts from the start."""
    xs = values()
    bad, good = (
        nki.per_rank(lambda rank, last=last: np.array([[last if rank == 2 else rank]], np.int32))
        for last in (5, 2)
    )
    with nki.World(ranks=RANKS, host="inprocess") as world:
        with pytest.raises(OutOfBoundsError, match="index 5") as caught:
            world.run(around, nki.per_rank(xs), bad)
        assert caught.value.core == "rank 2 core 0"
        outs = world.run(around, nki.per_rank(xs), good)
    for rank, out in enumerate(outs):
        before = (rank - 1) % RANKS
        wanted = xs[(rank - 2) % RANKS].copy()
        wanted[:, 0] = wanted[:, before]
        np.testing.assert_array_equal(out, wanted)


def test_ranks_that_take_part_in_less_are_in_the_same_collective():
    xs = values()
    with nki.World(ranks=RANKS, host="inprocess") as world:
        outs = world.run(pair_and_all, nki.per_rank(xs))
    for out in outs:
        np.testing.assert_array_equal(out, sum(xs))
