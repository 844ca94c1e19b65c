"""Many ranks: what is there once, what moves, how cores are packed; big ones are slow."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist.core_actor.placement import pack
from nki_dist.hbm.layout import common_inputs
from nki_dist.runtime.hosts import slots
from nki_dist.runtime.memory import Pool
from tests.launcher import kernels as K

HOSTS = ("inprocess", "ray")


def ints(rng, *shape):
    return rng.integers(-9, 9, shape).astype(np.float32)


def whole(ranks):
    return ncc.ReplicaGroup([list(range(ranks))])


@pytest.mark.parametrize("host", HOSTS)
def test_inputs_that_ranks_share_are_there_once(host):
    rng = np.random.default_rng(1)
    xs, weights = [ints(rng, 6, 5) for _ in range(3)], ints(rng, 6, 5)
    with nki.World(ranks=3, lnc=2, host=host, cores_per_actor=6) as world:
        for shift in range(3):  # the same program, other contents in the same place
            outs = world.run(K.add_weights, nki.per_rank(xs), weights + shift)
            for x, out in zip(xs, outs):
                np.testing.assert_array_equal(out, x + weights + shift)
        ys = [ints(rng, 6, 5) for _ in range(3)]
        outs = world.run(K.add_weights, nki.per_rank(xs), nki.per_rank(ys))
        for x, y, out in zip(xs, ys, outs):
            np.testing.assert_array_equal(out, x + y)
        outs = world.run(K.add_weights, weights, nki.per_rank(ys))
        for y, out in zip(ys, outs):
            np.testing.assert_array_equal(out, weights + y)


@pytest.mark.parametrize("host", HOSTS)
def test_common_inputs_grow_and_stacks_move(host):
    rng = np.random.default_rng(2)
    with nki.World(ranks=3, lnc=1, host=host, cores_per_actor=2) as world:
        for rows, columns in [(3, 4), (128, 700), (5, 3), (128, 2100)]:
            xs, weights = [ints(rng, rows, columns) for _ in range(3)], ints(rng, rows, columns)
            outs = world.run(K.add_weights, nki.per_rank(xs), weights)
            for x, out in zip(xs, outs):
                np.testing.assert_array_equal(out, x + weights)


@pytest.mark.parametrize("host", HOSTS)
def test_returned_and_written_inputs_are_every_rank_s_own(host):
    rng = np.random.default_rng(3)
    xs, weights = [ints(rng, 4, 5) for _ in range(3)], ints(rng, 4, 5)
    with nki.World(ranks=3, lnc=1, host=host) as world:
        outs = world.run(K.return_weights, nki.per_rank(xs), weights)
    for x, out in zip(xs, outs):
        np.testing.assert_array_equal(out, weights)
        np.testing.assert_array_equal(x, weights)


def test_what_is_common():
    a, b = np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float32)
    assert common_inputs([[a, b]]) == set()  # one rank shares with nobody
    assert common_inputs([[a, b], [a, a]]) == {0}
    assert common_inputs([[a, b], [a[:], b]]) == {0, 1}  # another view of the same bytes
    assert common_inputs([[a], [a.T.reshape(4, 6)]]) == set()
    assert common_inputs([[a], [a.view(np.int32)]]) == set()


@pytest.mark.parametrize(
    ("ranks", "lnc", "per_actor", "processors", "sizes"),
    [
        (8, 2, "auto", 2, [1] * 16),
        (16, 2, "auto", 2, [16, 16]),
        (17, 1, "auto", 2, [9, 8]),
        (256, 2, "auto", 2, [256, 256]),
        (5, 2, 3, 2, [4, 4, 2]),
        (5, 2, 1, 2, [1] * 10),
    ],
)
def test_packs_never_split_a_rank(ranks, lnc, per_actor, processors, sizes):
    packs = pack(slots(ranks, lnc), lnc, per_actor, processors)
    assert [len(p) for p in packs] == sizes
    if per_actor != 1 and max(sizes) > 1:
        assert all(len(p) % lnc == 0 and p[0].lnc_core == 0 for p in packs)
    assert [c.core for p in packs for c in p] == list(range(ranks * lnc))


def test_a_pool_offers_what_was_added():
    pool = Pool()
    buffer = np.zeros(64, np.uint8)
    pool.add(buffer)
    first = pool.offer()
    assert first[64].pop() is buffer
    assert first[64] == []
    assert pool.offer()[64] == [buffer]  # taking from an offer leaves it in the pool


@pytest.mark.parametrize("host", HOSTS)
def test_programs_that_share_buffers_don_t_meet(host):
    """Two programs in turn, one that waits in collectives and one that doesn't, many cores."""
    rng = np.random.default_rng(4)
    xs, weights = [ints(rng, 8, 6) for _ in range(12)], ints(rng, 8, 6)
    with nki.World(ranks=12, lnc=2, host=host) as world:
        for _ in range(2):
            outs = world.run(K.add_weights, nki.per_rank(xs), weights)
            sums = world.run(K.sum_of_ranks, nki.per_rank(xs), whole(12))
            for x, out, total in zip(xs, outs, sums):
                np.testing.assert_array_equal(out, x + weights)
                np.testing.assert_array_equal(total, np.sum(xs, axis=0))


@pytest.mark.slow
def test_an_ultraserver():
    rng = np.random.default_rng(5)
    xs, weights = [ints(rng, 64, 4096) for _ in range(256)], ints(rng, 64, 4096)
    with nki.World.trn2_ultraserver() as world:
        outs = world.run(K.add_weights, nki.per_rank(xs), weights)
        for x, out in zip(xs, outs):
            np.testing.assert_array_equal(out, x + weights)
        expected = np.sum(xs, axis=0)
        for total in world.run(K.sum_of_ranks, nki.per_rank(xs), whole(256)):
            np.testing.assert_array_equal(total, expected)
