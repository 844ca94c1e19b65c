"""Programs are linked once for all ranks, and each rank does it with its own operands."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from nki_dist.runtime import group
from tests.compiler.compiling import line_of

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
    source = x.ap([[8, 6], [1, 1]], 0, scalar_offset=place, indirect_dim=1)
    nisa.dma_copy(dst=tile, src=source, oob_mode=mode)  # ASKED
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


def wanted(xs, rank):
    """What the kernel returns, as NumPy has it."""
    (ranks,) = [of for of in GROUP.groups if rank in of]
    me, (rows, columns) = ranks.index(rank), SHAPE
    passed = [
        np.roll(xs.values[ranks[(me - step) % len(ranks)]], step, axis=1) for step in range(4)
    ]
    out = np.zeros((RANKS, *SHAPE), passed[0].dtype)
    for step in range(3):
        out[ranks[(me - step) % len(ranks)]] = passed[step]
    last = passed[3].copy()
    last[:, rank : rank + 2] = passed[3][:, 6:8]
    wide = last.T.astype(np.float32)
    counted = 2 + 3 * np.arange(rows)[:, None] + np.arange(columns)
    return out, wide * wide, counted.astype(np.int32)


@pytest.mark.parametrize("without", ["", "all"])
@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16.storage, np.float16])
def test_every_rank_has_its_own_operands(dtype, without, monkeypatch):
    monkeypatch.setenv("NKI_DIST_LINK_WITHOUT", without)
    xs, places = inputs(dtype)
    found = run(ring, xs, places, GROUP)
    for rank in range(RANKS):
        assert found[rank] == tuple(a.tobytes() for a in wanted(xs, rank))
    assert len(set(found)) == RANKS  # no rank's result is another's


def test_a_program_is_linked_once_for_all_ranks(monkeypatch):
    asked = []
    monkeypatch.setattr(
        group, "link", lambda *args, link=group.link: asked.append(args) or link(*args)
    )
    xs, places = inputs(np.float32)
    run(ring, xs, places, GROUP, lnc=1)
    assert len(asked) == 1


def alone(kernel, xs, others, *arguments):
    """The bits of ranks that are worlds of their own."""
    found = []
    for x, other in zip(xs.values, map(others, range(RANKS)), strict=True):
        with nki.World(ranks=1, host="inprocess") as world:
            (out,) = world.run(kernel, x, other, *arguments)
        found.append(tuple(a.tobytes() for a in out))
    return found


def test_an_index_outside_is_the_error_of_the_rank_that_has_it():
    """The program has been linked for ranks whose indices are inside."""
    xs, _ = inputs(np.float32)
    places = nki.per_rank(lambda rank: np.array([[8 if rank == 3 else rank]], np.int32))
    with pytest.raises(OutOfBoundsError, match=r"index 8 is outside \[0, 8\)") as caught:
        run(column, xs, places, nisa.oob_mode.error)
    assert caught.value.core == "rank 3 core 0"
    assert caught.value.location == line_of(column.fn, "# ASKED")


def test_rows_outside_are_skipped():
    xs, _ = inputs(np.float32)
    asked = lambda rank: np.array([[100 if rank == 3 else rank]], np.int32)  # noqa: E731
    found = run(column, xs, nki.per_rank(asked), nisa.oob_mode.skip)
    assert found == alone(column, xs, asked, nisa.oob_mode.skip)
    assert found[3] == (np.full((6, 1), 9, np.float32).tobytes(),)
    assert found[1] == (xs.values[1][:, 1:2].tobytes(),)
