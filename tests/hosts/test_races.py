"""Races between the two cores of a rank: a correct kernel, and the same one without order."""

import inspect

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning")


def swap_halves(x, ordered):
    """Each core stores its half of a shared scratch and loads the other core's."""
    rows, cols = x.shape
    half, me = rows // 2, nl.program_id(0)
    scratch = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm, name="scratch")
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((half, cols), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[nl.ds(me * half, half), :])
    nisa.dma_copy(dst=scratch[nl.ds(me * half, half), :], src=t)  # STORE
    if ordered == True:  # noqa: E712  (kernels have no `is`)
        nisa.core_barrier(data=scratch, cores=(0, 1))
    elif ordered == "sendrecv":
        nisa.sendrecv(t, t, send_to_rank=me, recv_from_rank=me, pipe_id=0)
    elif ordered:
        nisa.core_barrier(data=scratch, cores={"first": (0,), "own": (me,)}[ordered])
    u = nl.ndarray((half, cols), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=u, src=scratch[nl.ds((1 - me) * half, half), :])  # LOAD
    nisa.dma_copy(dst=out[nl.ds(me * half, half), :], src=u)
    return out


def both_store(x, equal):
    """Both cores store the whole output: the same bytes, or each its own number."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    t = nl.full(x.shape, 1 if equal else nl.program_id(0), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out, src=t)
    return out


def scatter_rows(x, index):
    """Core 0 and core 1 scatter their rows to places given at run time."""
    rows, cols = x.shape[1:]
    me = nl.program_id(0)
    out = nl.ndarray((2 * rows, cols), dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    t = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.sbuf)
    i = nl.ndarray((rows, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[me])
    nisa.dma_copy(dst=i, src=index[me])
    nisa.dma_copy(dst=out.ap([[cols, rows], [1, cols]], vector_offset=i, indirect_dim=0), src=t)
    return out


def columns_of_own(x):
    """Interleaved columns: the ranges of bytes overlap, the bytes don't."""
    rows, cols = x.shape
    me = nl.program_id(0)
    out = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=out[:, me:cols:2], src=t[:, me:cols:2])
    return out


def own_columns_of_any_rows(x, index, wide):
    """Both cores scatter to the same rows, but each to its half of the columns, or a bit more."""
    _, rows, cols = x.shape
    half, me = cols // 2, nl.program_id(0)
    width = half + wide * (1 - me)
    out = nl.ndarray((rows + 1, cols), dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    t = nl.ndarray((rows, width), dtype=x.dtype, buffer=nl.sbuf)
    i = nl.ndarray((rows, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[me, :, nl.ds(me * half, width)])
    nisa.dma_copy(dst=i, src=index[me])
    place = out.ap([[cols, rows], [1, width]], me * half, vector_offset=i, indirect_dim=0)
    nisa.dma_copy(dst=place, src=t)
    return out


def own_half_of_any_expert(x, expert, shift):
    """Each core stores its half of the expert that it is told, `shift` elements further on."""
    experts, size = 3, x.shape[1]
    half, me = size // 2, nl.program_id(0)
    out = nl.ndarray((experts + 1, size), dtype=x.dtype, buffer=nl.shared_hbm, name="out")
    t = nl.ndarray((1, half), dtype=x.dtype, buffer=nl.sbuf)
    chosen = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[me : me + 1, nl.ds(me * half, half)])
    nisa.dma_copy(dst=chosen, src=expert[me])
    at = me * (half + shift)
    place = out.ap([[size, 1], [1, half]], at, scalar_offset=chosen, indirect_dim=0)
    nisa.dma_copy(dst=place, src=t)
    return out


@pytest.fixture(scope="module", params=("inprocess", "ray"))
def world(request):
    with nki.World(lnc=2, host=request.param) as made:
        yield made


def line_of(function, mark):
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, text in enumerate(lines) if mark in text)


X = np.random.default_rng(1).standard_normal((64, 40)).astype(np.float32)


def test_barrier_orders(world):
    got = world.run(nki.jit(swap_halves), X, True)[0]
    np.testing.assert_array_equal(got, np.concatenate([X[32:], X[:32]]))


def test_missing_barrier_is_a_race_every_time(world):
    for _ in range(3):
        with pytest.raises(errors.RaceError, match="scratch") as caught:
            world.run(nki.jit(swap_halves), X, False)
        text = str(caught.value)
        assert f"test_races.py:{line_of(swap_halves, '# STORE')}" in text
        assert f"test_races.py:{line_of(swap_halves, '# LOAD')}" in text


@pytest.mark.parametrize("alone", ["first", "own", "sendrecv"])
def test_what_a_core_does_alone_orders_nothing(world, alone):
    """Between store and load: a barrier that names one core, or a sendrecv with oneself."""
    with pytest.raises(errors.RaceError, match="scratch"):
        world.run(nki.jit(swap_halves), X, alone)


def test_storing_the_same_bytes_is_no_race(world):
    np.testing.assert_array_equal(world.run(nki.jit(both_store), X, True)[0], np.ones_like(X))


def test_storing_other_bytes_is_a_race(world):
    with pytest.raises(errors.RaceError, match=r"element \[0, 0\]"):
        world.run(nki.jit(both_store), X, False)


def test_interleaved_stores_are_no_race(world):
    np.testing.assert_array_equal(world.run(nki.jit(columns_of_own), X)[0], X)


def test_scattered_rows_are_compared_where_they_land(world):
    x = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    apart = np.array([[0, 2, 4, 6], [1, 3, 5, 7]], np.int32)[..., None]
    got = world.run(nki.jit(scatter_rows), x, apart)[0]
    np.testing.assert_array_equal(got[0::2], x[0])
    np.testing.assert_array_equal(got[1::2], x[1])
    meeting = np.array([[0, 2, 4, 6], [1, 3, 4, 7]], np.int32)[..., None]
    with pytest.raises(errors.RaceError, match=r"element \[4, 0\]"):
        world.run(nki.jit(scatter_rows), x, meeting)


def watched(world, kernel, *args):
    return [p.facts["watched"] for p in world.compile(nki.jit(kernel), *args).programs]


def test_own_columns_of_rows_chosen_at_run_time_are_not_even_watched(world):
    x = np.arange(2 * 3 * 10, dtype=np.float32).reshape(2, 3, 10)
    index = np.array([[2, 0, 1], [1, 2, 0]], np.int32)[..., None]
    assert watched(world, own_columns_of_any_rows, x, index, 0) == [[], []]
    got = world.run(nki.jit(own_columns_of_any_rows), x, index, 0)[0]
    np.testing.assert_array_equal(got[[2, 0, 1], :5], x[0, :, :5])
    np.testing.assert_array_equal(got[[1, 2, 0], 5:], x[1, :, 5:])
    with pytest.raises(errors.RaceError, match=r"out .*element \[\d, 5\]"):
        world.run(nki.jit(own_columns_of_any_rows), x, index, 1)


def test_own_halves_of_experts_chosen_at_run_time_are_not_even_watched(world):
    x = np.arange(2 * 8, dtype=np.float32).reshape(2, 8)
    expert = np.array([2, 1], np.int32).reshape(2, 1, 1)
    assert watched(world, own_half_of_any_expert, x, expert, 0) == [[], []]
    got = world.run(nki.jit(own_half_of_any_expert), x, expert, 0)[0]
    np.testing.assert_array_equal(got[2, :4], x[0, :4])
    np.testing.assert_array_equal(got[1, 4:], x[1, 4:])
    # A step further, core 1 reaches into the first half of the next expert.
    with pytest.raises(errors.RaceError, match=r"out .*element \[2, 0\]"):
        world.run(nki.jit(own_half_of_any_expert), x, expert, 1)
