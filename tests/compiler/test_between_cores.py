"""What two cores leave for each other in shared tensors: where compiling knows that it was written,
a launch needn't look at its outputs for what nobody wrote."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes import between_cores
from nki_dist.errors import UnwrittenOutputWarning
from tests.compiler.compiling import compiled

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
]

X = np.random.default_rng(7).standard_normal((12, 10)).astype(np.float32)
WHOLE = slice(0, 12)


def me() -> int:
    return nl.program_id(0)


def half(core: int, rows: int = 6, columns: int = 10) -> tuple[slice, slice]:
    return slice(core * 6, core * 6 + rows), slice(0, columns)


def shared(shape: tuple[int, ...] = X.shape) -> nl.NkiTensor:
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def put(dst, x, place) -> None:
    nl.store(dst[place], nl.load(x[place]))


def give(out, handed, place) -> None:
    """Loads what the other core left, and stores it to this core's part of what is returned."""
    tile = nl.load(handed[place])
    nl.store(out[me(), 0 : tile.shape[0], 0 : tile.shape[1]], tile)


def meet(handed, cores=(0, 1)) -> None:
    nisa.core_barrier(data=handed, cores=cores)


def swap(to: Callable[[int], int], source: Callable[[int], int], pipe: int = 0) -> None:
    nisa.sendrecv(
        src=nl.zeros((1, 1), nl.float32),
        dst=nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf),
        send_to_rank=to(me()),
        recv_from_rank=source(me()),
        pipe_id=pipe,
    )


def other(core: int) -> int:
    return 1 - core


def itself(core: int) -> int:
    return core


def register_of(n):
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(n))
    return register


def made(body: Callable[..., None], **options) -> Compiled:
    """`body(x, n, handed, out)`: `handed` isn't returned."""

    def kernel(x, n):
        handed, out = shared(), nl.zeros((2, 12, 10), nl.float32, buffer=nl.shared_hbm)
        body(x, n, handed, out)
        return out

    return compiled(kernel, (X.shape, X.dtype), ((1, 1), np.int32), lnc=2, **options)


# ---- known ---------------------------------------------------------------------------------------


def halves(x, n, handed, out):
    put(handed, x, half(me()))
    meet(handed)
    give(out, handed, WHOLE)


def columns(x, n, handed, out):
    put(handed, x, (WHOLE, slice(me() * 5, me() * 5 + 5)))
    meet(handed)
    give(out, handed, half(1 - me()))


def only_what_was_written(x, n, handed, out):
    put(handed, x, half(me(), 4, 7))
    meet(handed)
    give(out, handed, half(1 - me(), 4, 7))


def written_by_one(x, n, handed, out):
    if me() == 1:
        put(handed, x, WHOLE)
    meet(handed)
    give(out, handed, WHOLE)


def its_own(x, n, handed, out):
    """Nothing needs to come from the other core."""
    put(handed, x, half(me()))
    give(out, handed, half(me()))


def again_and_again(x, n, handed, out):
    for rows in range(6):
        put(handed, x, (slice(me() * 6 + rows, me() * 6 + rows + 1), slice(0, 10)))
        meet(handed)
        give(out, handed, half(1 - me(), rows + 1))


def by_messages(x, n, handed, out):
    put(handed, x, half(me()))
    swap(other, other)
    give(out, handed, WHOLE)


def by_a_message_one_way(x, n, handed, out):
    """What core 1 waits for at first is all that it needs."""
    if me() == 0:
        put(handed, x, half(0))
        swap(other, other)
    else:
        swap(itself, other)
        give(out, handed, half(0))
        swap(other, itself)


def beside_messages_to_itself(x, n, handed, out):
    put(handed, x, half(me()))
    for _ in range(me()):
        swap(itself, itself)
    meet(handed)
    give(out, handed, WHOLE)


def an_argument(x, n, handed, out):
    """Which the caller wrote."""
    nl.store(x[half(me())], nl.load(x[half(1 - me())]))
    give(out, x, WHOLE)


def by_a_barrier_on_a_tile(x, n, handed, out):
    put(handed, x, half(me()))
    meet(nl.zeros((2, 2), nl.float32))
    give(out, handed, WHOLE)


def through_a_collective(x, n, handed, out):
    """Which waits for both cores, and whose result both have."""
    sums = shared()
    put(handed, x, half(me()))
    ncc.all_reduce([handed], [sums], ncc.ReplicaGroup([[0]]), nl.add)
    give(out, sums, half(1 - me()))


def beside_a_collective_on_tiles(x, n, handed, out):
    put(handed, x, half(me()))
    on_tiles()
    meet(handed)
    give(out, handed, WHOLE)


def in_a_loop_that_surely_runs(x, n, handed, out):
    for _ in nl.dynamic_range(3):
        put(handed, x, half(me()))
    meet(handed)
    for _ in nl.dynamic_range(3):
        give(out, handed, WHOLE)


def all_at_a_run_time_row(x, n, handed, out):
    put(handed, x, half(me()))
    meet(handed)
    load_row_of(n, handed, out)


def other_bits(x, n, handed, out):
    """Views as other types are of the same bytes."""
    put(handed, x, half(me()))
    meet(handed)
    tile = nl.ndarray((12, 20), nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=handed.view(nl.bfloat16))
    nl.store(out[me()], tile.view(nl.float32))


def on_tiles() -> None:
    tile, result = nl.zeros((2, 2), nl.float32), nl.ndarray((2, 2), nl.float32, buffer=nl.sbuf)
    ncc.all_reduce([tile], [result], ncc.ReplicaGroup([[0]]), nl.add)


def load_row_of(n, handed, out):
    tile = nl.ndarray((1, 10), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=handed.select(0, register_of(n)))
    nl.store(out[me(), 0:1], tile)


KNOWN = [
    halves,
    columns,
    only_what_was_written,
    written_by_one,
    its_own,
    again_and_again,
    by_messages,
    by_a_message_one_way,
    beside_messages_to_itself,
    an_argument,
    by_a_barrier_on_a_tile,
    through_a_collective,
    beside_a_collective_on_tiles,
    in_a_loop_that_surely_runs,
    all_at_a_run_time_row,
    other_bits,
]


@pytest.mark.parametrize("body", KNOWN)
def test_known(body):
    assert not made(body).undecided


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


def test_a_scratch_that_one_core_leaves_in_part_is_told():
    """That only one core writes."""

    def kernel(x):
        handed, out = shared(), shared((2, 12, 10))
        if me() == 1:
            put(handed, x, slice(0, 11))
        meet(handed)
        if me() == 0:
            give(out, handed, WHOLE)
        else:
            nl.store(out[1], nl.load(x))
        return out

    with pytest.warns(UnwrittenOutputWarning, match="10 of 240 elements"):
        nki.simulate(nki.jit(kernel))[2](X)
