"""Functions of `per_rank`: called for a rank when its stack is filled, with typed errors."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist.errors import LaunchError, NkiValidationError
from nki_dist.hbm.stacks import make_fill, with_arrays
from tests.launcher import kernels as K

RANKS = 4
WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def shard(rank):
    return np.full((2, 3), 10 * rank, np.float32)


def worlds():
    yield nki.World(ranks=RANKS, host="inprocess")
    yield nki.World(ranks=RANKS, host="debug")


@pytest.fixture
def world():
    with nki.World(ranks=RANKS, host="inprocess") as made:
        yield made


def test_results_are_those_of_a_list():
    for world in worlds():
        with world:
            functions = world.run(K.add_weights, nki.per_rank(shard), WEIGHTS)
            listed = world.run(K.add_weights, nki.per_rank([*map(shard, range(RANKS))]), WEIGHTS)
            named = world.run(K.add_weights, x=nki.per_rank(shard), weights=WEIGHTS)
        assert [o.tobytes() for o in functions] == [o.tobytes() for o in listed]
        assert [o.tobytes() for o in functions] == [o.tobytes() for o in named]


@pytest.mark.slow
def test_arrays_live_one_at_a_time(world):
    """Rank 0's stays for the launch; of the others one is there when the next is made."""
    made: list[weakref.ref] = []
    alive = []

    def make(rank):
        gc.collect()
        alive.append(sum(ref() is not None for ref in made))
        array = shard(rank)
        made.append(weakref.ref(array))
        return array

    world.run(K.add_weights, nki.per_rank(make), WEIGHTS)
    assert len(made) == RANKS
    assert max(alive) <= 2  # of four: rank 0's and the one before


def test_written_arrays_are_the_callers(world):
    arrays = [shard(rank) for rank in range(RANKS)]
    world.run(K.return_weights, nki.per_rank(lambda rank: arrays[rank]), WEIGHTS)
    assert all(np.array_equal(array, WEIGHTS) for array in arrays)


def test_one_array_for_two_arguments_stays_one_tensor(world):
    outs = world.run(K.add_weights, nki.per_rank(lambda rank: WEIGHTS), WEIGHTS)
    assert all(np.array_equal(out, 2 * WEIGHTS) for out in outs)
    with pytest.raises(LaunchError, match="rank 0 has other compile-time arguments"):
        world.run(K.add_weights, nki.per_rank(lambda r: shard(r) if r else WEIGHTS), WEIGHTS)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.ones((2, 4), np.float32), r"argument x is \(2, 3\) float32 on rank 0 and \(2, 4\) "),
        (np.ones((2, 3), np.float16), r"argument x is .* and \(2, 3\) float16 on rank 2"),
        (7, "argument x is .* on rank 0 and int on rank 2; per_rank functions return an array"),
    ],
)
def test_what_differs_from_rank_0_is_told_with_its_rank(world, other, message):
    with pytest.raises(LaunchError, match=message) as caught:
        world.run(K.add_weights, nki.per_rank(lambda r: other if r == 2 else shard(r)), WEIGHTS)
    assert caught.value.code == "ranks-differ"
    outs = world.run(K.add_weights, nki.per_rank(shard), WEIGHTS)  # the world goes on
    assert np.array_equal(outs[2], 20 + WEIGHTS)


def test_a_dtype_that_nki_lacks_is_told(world):
    with pytest.raises(NkiValidationError, match="argument x of add_weights has dtype complex128"):
        world.run(
            K.add_weights,
            nki.per_rank(lambda r: np.ones((2, 3), complex) if r == 3 else shard(r)),
            WEIGHTS,
        )


@pytest.mark.parametrize("bad", [0, 2])
def test_a_function_that_raises_is_told_with_its_rank(world, bad):
    def make(rank):
        if rank == bad:
            raise ValueError("no shard here")
        return shard(rank)

    message = f"the function of per_rank raised ValueError for rank {bad}: no shard here"
    with pytest.raises(LaunchError, match=message) as caught:
        world.run(K.add_weights, nki.per_rank(make), WEIGHTS)
    assert caught.value.code == "per-rank"
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_second_launch_calls_them_again(world):
    shift = [0]
    group = ncc.ReplicaGroup([list(range(RANKS))])
    for shift[0] in (1, 5):
        outs = world.run(K.sum_of_ranks, nki.per_rank(lambda rank: shard(rank) + shift[0]), group)
        assert all(np.array_equal(o, np.full((2, 3), 60 + 4 * shift[0])) for o in outs)


def test_another_node_gets_the_function(world):
    """What is sent there; that it arrives is for test_cluster."""
    calls = []

    def make(rank):
        calls.append(rank)
        return shard(rank)

    launches = []
    run, world.host.launch = (
        world.host.launch,
        lambda launch: launches.append(launch) or run(launch),
    )
    world.run(K.add_weights, nki.per_rank(make), WEIGHTS)
    layout = world.host._layouts.of(launches[0].key, launches[0].compiled, launches[0].inputs)
    calls.clear()
    sent = make_fill(layout, launches[0].inputs, [2, 3], travels=True)
    assert calls == []
    assert [array.tobytes() for array in (sent.inputs[2][0](), sent.inputs[3][0]())] == [
        shard(2).tobytes(),
        shard(3).tobytes(),
    ]
    calls.clear()
    made = with_arrays(launches[0].inputs, [3])
    assert calls == [3]
    assert np.array_equal(made[3][0], shard(3))
    assert callable(made[2][0])
