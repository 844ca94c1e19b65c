"""What two cores leave for each other in shared tensors: where compiling knows that it was written,
a launch needn't look at its outputs for what nobody wrote."""

from __future__ import annotations

import pytest

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.compiler.between import (
    WHOLE,
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

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
]

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
