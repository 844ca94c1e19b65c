"""What two cores leave for each other: where only a run tells, and what follows."""

import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes import between_cores
from nki_dist.errors import UnwrittenOutputWarning
from tests.compiler.between import (
    WHOLE,
    X,
    give,
    half,
    itself,
    made,
    me,
    meet,
    other,
    put,
    register_of,
    shared,
    swap,
)
from tests.compiler.test_between_cores import halves, load_row_of, on_tiles

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
]

# ---- for a run to tell ---------------------------------------------------------------------------


def without_a_meeting(x, n, handed, out):
    put(handed, x, half(me()))
    give(out, handed, WHOLE)


def before_the_meeting(x, n, handed, out):
    put(handed, x, half(me()))
    give(out, handed, half(1 - me()))
    meet(handed)


def stored_after_the_meeting(x, n, handed, out):
    put(handed, x, half(me(), 5))
    meet(handed)
    put(handed, x, half(me()))
    give(out, handed, WHOLE)


def a_row_is_missing(x, n, handed, out):
    put(handed, x, half(me(), 5))
    meet(handed)
    give(out, handed, WHOLE)


def a_column_is_missing(x, n, handed, out):
    put(handed, x, half(me(), 6, 9))
    meet(handed)
    give(out, handed, half(1 - me()))


def one_core_stores_less(x, n, handed, out):
    put(handed, x, half(me(), 6 - me()))
    meet(handed)
    give(out, handed, half(1 - me()))


def a_barrier_of_another_tensor(x, n, handed, out):
    put(handed, x, half(me()))
    meet(shared((2, 2)))
    give(out, handed, WHOLE)


def a_barrier_of_one_core(x, n, handed, out):
    put(handed, x, half(me()))
    meet(handed, cores=(me(),))
    give(out, handed, WHOLE)


def a_collective_on_tiles(x, n, handed, out):
    """In which core 0 doesn't meet core 1."""
    put(handed, x, half(me()))
    on_tiles()
    give(out, handed, WHOLE)


def a_permutation(x, n, handed, out):
    """From which a rank may be left out."""
    sums = nl.zeros(X.shape, nl.float32, buffer=nl.shared_hbm)
    put(handed, x, half(me()))
    ncc.collective_permute([sums], [sums], [(0, 0)])
    give(out, handed, WHOLE)


def one_way(x, n, handed, out):
    """Core 0 loads once it has a message that core 1 sent before it stored."""
    if me() == 0:
        put(handed, x, half(0))
        swap(other, other)
        give(out, handed, WHOLE)
    else:
        swap(itself, other)
        swap(other, itself)
        put(handed, x, half(1))
    swap(other, other)


def a_message_that_nobody_waits_for(x, n, handed, out):
    """Core 1 sends it and loads; what core 0 stored may come later."""
    if me() == 0:
        swap(other, other)
        put(handed, x, half(0))
    else:
        swap(itself, other)
        swap(other, itself)
        give(out, handed, half(0))
    swap(other, other)


def different_meetings(x, n, handed, out):
    put(handed, x, half(me()))
    swap(other, other, pipe=me())
    give(out, handed, WHOLE)


def meetings_in_a_loop(x, n, handed, out):
    for _ in nl.dynamic_range(register_of(n)):
        put(handed, x, half(me()))
        meet(handed)
    give(out, handed, WHOLE)


def a_loop_of_meetings_before(x, n, handed, out):
    for _ in nl.dynamic_range(register_of(n)):
        meet(handed)
    put(handed, x, half(me()))
    meet(handed)
    give(out, handed, WHOLE)


def stored_in_a_loop_that_may_not_run(x, n, handed, out):
    for _ in nl.dynamic_range(register_of(n)):
        put(handed, x, half(me()))
    meet(handed)
    give(out, handed, WHOLE)


def stored_at_a_run_time_row(x, n, handed, out):
    tile = nl.load(x[0:1])
    put(handed, x, half(me(), 5))
    nisa.dma_copy(dst=handed.select(0, register_of(n)), src=tile)
    meet(handed)
    give(out, handed, WHOLE)


def perhaps_skipped(x, n, handed, out):
    rows = x.ap([[10, 6], [1, 10]], scalar_offset=nl.load(n), indirect_dim=0)
    nisa.dma_copy(dst=handed[half(me())], src=rows, oob_mode=nisa.oob_mode.skip)
    meet(handed)
    give(out, handed, WHOLE)


def some_at_a_run_time_row(x, n, handed, out):
    put(handed, x, half(me(), 5))
    meet(handed)
    load_row_of(n, handed, out)


UNKNOWN = [
    without_a_meeting,
    before_the_meeting,
    stored_after_the_meeting,
    a_row_is_missing,
    a_column_is_missing,
    one_core_stores_less,
    a_barrier_of_another_tensor,
    a_barrier_of_one_core,
    a_collective_on_tiles,
    a_permutation,
    one_way,
    a_message_that_nobody_waits_for,
    different_meetings,
    meetings_in_a_loop,
    a_loop_of_meetings_before,
    stored_in_a_loop_that_may_not_run,
    stored_at_a_run_time_row,
    perhaps_skipped,
    some_at_a_run_time_row,
]


@pytest.mark.parametrize("body", UNKNOWN)
def test_for_a_run_to_tell(body):
    assert made(body).undecided
    assert not made(body, check="unwritten=zero").undecided


def test_a_tensor_too_large_to_follow_is_for_a_run_to_tell(monkeypatch):
    monkeypatch.setattr(between_cores, "LARGEST", X.size - 1)
    assert made(halves).undecided
    assert not made(never_read).undecided


def never_read(x, n, handed, out):
    put(handed, x, half(me(), 5))


def test_what_isnt_read_doesnt_matter():
    assert not made(never_read).undecided


def test_returned_tensors_are_read_alike():
    def kernel(x, rows):
        out = nl.ndarray((2, 12, 10), nl.float32, buffer=nl.shared_hbm)
        handed = shared()
        put(handed, x, half(me(), 6))
        if rows < 6:
            give(out, handed, half(1 - me(), rows))
            meet(handed)
        else:
            meet(handed)
            give(out, handed, half(1 - me(), rows))
        nl.store(out[me()], nl.load(x))
        return out, handed

    launch = nki.simulate(nki.jit(kernel))[2]
    assert not launch.compile(X, 6).undecided
    assert launch.compile(X, 5).undecided


# ---- what follows --------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [halves, a_row_is_missing])
def test_a_saved_program_says_the_same(body, tmp_path):
    kernel = made(body)
    kernel.programs[0].facts[between_cores.OPEN_READS] = []  # it isn't believed
    kernel.save(tmp_path / "k.nkip")
    assert Compiled.load(tmp_path / "k.nkip").undecided is (body is a_row_is_missing)


def test_what_nobody_wrote_is_told_and_what_was_written_comes_through():
    def kernel(x, rows):
        handed, out = shared(), shared((2, 12, 10))
        put(handed, x, half(me(), rows))
        meet(handed)
        give(out, handed, WHOLE)
        return out

    launch = nki.simulate(nki.jit(kernel))[2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnwrittenOutputWarning)
        assert np.array_equal(launch(X, 6), [X, X])
    with pytest.warns(UnwrittenOutputWarning, match="40 of 240 elements"):
        launch(X, 5)
