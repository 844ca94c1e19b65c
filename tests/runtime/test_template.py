"""Programs linked once for all ranks give what linking for each rank gives, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from nki_dist.runtime.group import CoreGroup

RANKS, SHAPE = 5, (6, 8)
GROUP = ncc.ReplicaGroup([[3, 0, 4], [1, 2]])  # rings of 3 and of 2


@nki.jit
def ring(x, places, group):
    """Copies of all kinds: between memories, within a tensor, turned, converted, to places that
    ranks and data choose; nobody else's step fits a rank, as ranks and places differ."""
    rows, columns = x.shape
    out = nl.ndarray((RANKS, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    turned = nl.ndarray((columns, rows), dtype=nl.float32, buffer=nl.shared_hbm)
    counted = nl.ndarray((rows, columns), dtype=nl.int32, buffer=nl.shared_hbm)
    a, b = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in "ab"]
    zeros = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(zeros, 0)
    numbers = nl.ndarray((rows, columns), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(numbers, [[1, columns]], offset=2, channel_multiplier=3)
    for rank in range(RANKS):
        nisa.dma_copy(dst=out[rank], src=zeros)
    nisa.dma_copy(dst=a, src=x)
    for step in range(3):
        rank = ncc.collective_permute_implicit_current_processing_rank_id(step, group)
        nisa.dma_copy(dst=out.select(0, rank), src=a)
        ncc.collective_permute_implicit([[a]], [[b]], group)
        nisa.tensor_copy(dst=a[:, 1:], src=b[:, :-1])
        nisa.tensor_copy(dst=a[:, :1], src=b[:, -1:])
    place = nisa.register_alloc(nl.load(places))
    nisa.dma_copy(dst=a[:, nl.ds(place, 2)], src=a[:, 6:8])  # one tensor
    nisa.dma_copy(dst=b, src=a)
    psum = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=psum, data=b)
    tile = nl.ndarray((columns, rows), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
    nisa.dma_copy(dst=counted, src=numbers)
    nisa.dma_copy(dst=turned, src=tile)
    return out, turned, counted


@nki.jit
def column(x, places, mode):
    """The column that each rank asks for."""
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(tile, 9)
    place = nisa.register_alloc(nl.load(places))
    nisa.dma_copy(dst=tile, src=x.ap([[8, 6], [1, 1]], 0, scalar_offset=place, indirect_dim=1),
                  oob_mode=mode)  # fmt: skip
    nisa.dma_copy(dst=out, src=tile)
    return (out,)


def inputs(dtype):
    rng = np.random.default_rng(3)
    xs = [rng.standard_normal(SHAPE).astype(dtype) for _ in range(RANKS)]
    return nki.per_rank(xs), nki.per_rank(lambda rank: np.array([[rank]], np.int32))


def run(kernel, *arguments, host="inprocess", **options):
    """The bits of two launches, which have to be equal, by rank."""
    with nki.World(ranks=RANKS, host=host, **options) as world:
        found = [world.run(kernel, *arguments) for _ in range(2)]
    first, again = ([tuple(a.tobytes() for a in out) for out in outs] for outs in found)
    assert first == again
    return first


@pytest.fixture
def alone(monkeypatch):
    """Run with each core linked by itself."""

    def run_alone(*arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(CoreGroup, "_templates", lambda self, programs: [None] * len(programs))
            return run(*arguments, **options)

    return run_alone


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16.storage, np.float16])
def test_bits_are_those_of_cores_that_are_linked_alone(alone, dtype):
    xs, places = inputs(dtype)
    found = run(ring, xs, places, GROUP)
    assert found == alone(ring, xs, places, GROUP)
    assert len(set(found)) == RANKS  # no rank's result is another's


def test_ring_gathers_what_each_rank_had():
    xs, places = inputs(np.float32)
    with nki.World(ranks=RANKS, host="inprocess") as world:
        outs = world.run(ring, xs, places, GROUP)
    for group in GROUP.groups:
        for me, rank in enumerate(group):
            for step in range(min(3, len(group))):
                source = group[(me - step) % len(group)]
                wanted = np.roll(xs.values[source], step, axis=1)
                if len(group) == 3 or step:  # a ring of 2 comes by its own block again
                    np.testing.assert_array_equal(outs[rank][0][source], wanted)


def test_an_index_outside_is_the_error_of_the_rank_that_has_it(alone):
    """The template has been learnt on ranks whose indices are inside."""
    xs, _ = inputs(np.float32)
    places = nki.per_rank(lambda rank: np.array([[8 if rank == 3 else rank]], np.int32))
    told = []
    for how in (run, alone):
        with pytest.raises(OutOfBoundsError, match=r"index 8 is outside \[0, 8\)") as caught:
            how(column, xs, places, nisa.oob_mode.error)
        told.append((caught.value.core, caught.value.location, caught.value.message))
    assert told[0] == told[1]
    assert told[0][0] == "rank 3 core 0"


def test_rows_outside_are_skipped(alone):
    xs, _ = inputs(np.float32)
    places = nki.per_rank(lambda rank: np.array([[100 if rank == 3 else rank]], np.int32))
    found = run(column, xs, places, nisa.oob_mode.skip)
    assert found == alone(column, xs, places, nisa.oob_mode.skip)
    assert found[3] == (np.full((6, 1), 9, np.float32).tobytes(),)
    assert found[1] == (xs.values[1][:, 1:2].tobytes(),)
