"""Messages between cores in a replay: when they arrive, and what happens if they don't."""

from __future__ import annotations

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.errors import LaunchError
from nki_dist.timing import Seat
from nki_dist.timing.exchange import EXCHANGES, Exchange
from tests.timing.build import compiled, replay

TRN2 = arch.get("trn2")


def exchange(x):
    """Core 1 arrives later; then both meet at a barrier."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 128, 64), nl.float32, buffer=nl.shared_hbm)
    mine, theirs = (nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.memset(dst=mine, value=me)
    if me == 1:
        late = nl.ndarray((128, 8192), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=late, value=0)
        nisa.tensor_copy(dst=mine, src=late[:, 0:64])
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(dst=out[me], src=theirs)
    nisa.core_barrier(out, (0, 1))
    nisa.dma_copy(dst=theirs, src=out[1 - me])
    return out


def test_messages_carry_times():
    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    timeline = replay(programs, [[], []], machine)
    first, second = timeline.cores
    moved = 128 * 64 * 4 / TRN2.sendrecv_gbps
    assert first.start[1] < second.start[3]
    assert first.end[1] == pytest.approx(second.start[3] + moved + TRN2.sendrecv_ns)
    assert second.end[3] == pytest.approx(second.start[3] + moved)
    assert first.held[1] == (1, 3) and 3 not in second.held
    assert first.start[3] >= first.done[2]  # the barrier waits for the store it publishes
    arrivals = [c.start[b] + TRN2.core_barrier_ns for c, b in ((first, 3), (second, 5))]
    assert second.end[5] == pytest.approx(arrivals[0])
    assert first.ready[4] >= first.end[3]
    assert len(timeline.deliveries) == 4
    assert {(d.source, d.target) for d in timeline.deliveries} == {
        ((0, 1), (1, 3)),
        ((1, 3), (0, 1)),
        ((0, 3), (1, 5)),
        ((1, 5), (0, 3)),
    }


def test_messages_that_are_never_sent():
    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    programs[1].body = programs[1].body[:-2]
    with pytest.raises(LaunchError, match=r"never sent: core 0 in <3: core_barrier .* for core 1"):
        replay(programs, [[], []], machine)


def test_who_never_comes_to_a_rendezvous_is_named():
    def together(i, me, seats, machine):
        return Exchange("together", (), (), 5.0, 7.0, meets=(0, 1))

    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    rules = {**EXCHANGES, "core_barrier": together}
    first, second = replay(programs, [[], []], machine, exchanges=rules).cores
    assert first.end[3] == second.end[5] == max(first.start[3], second.start[5]) + 7
    programs[1].body = programs[1].body[:-2]
    with pytest.raises(LaunchError, match=r"core 0 in <3: core_barrier .* for cores \[1\] \(toge"):
        replay(programs, [[], []], machine, exchanges=rules)


def test_an_exchange_needs_a_rule():
    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    with pytest.raises(LaunchError, match=r"no timing rule for nisa.sendrecv"):
        replay(programs, [[], []], machine, exchanges={})


def test_a_rule_can_be_replaced():
    def instant(i, me, seats, machine):
        return Exchange("rendezvous", (1 - me,), (1 - me,), 5.0, 7.0)

    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    rules = {**EXCHANGES, "core_barrier": instant}
    first, second = replay(programs, [[], []], machine, exchanges=rules).cores
    meet = max(first.start[3], second.start[5])
    assert sorted([first.end[3], second.end[5]]) == pytest.approx(
        sorted([meet + 5, max(meet + 7, min(first.start[3], second.start[5]) + 5)])
    )


@pytest.mark.parametrize("late", [0, 1])
def test_a_meeting_is_over_for_all_when_the_last_has_come(late):
    """Who came earlier is held by the last one, its own work done; the last one isn't held."""

    def rendezvous(x):
        out = nl.ndarray((2, 4, 4), nl.float32, buffer=nl.shared_hbm)
        if nl.program_id(0) == late:
            nisa.memset(dst=nl.ndarray((128, 999), nl.float32, buffer=nl.sbuf), value=0)
            with nl.no_reorder():
                nisa.memset(dst=nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf), value=0)
                nisa.core_barrier(out, (0, 1), engine=nisa.engine.vector)
        else:
            nisa.core_barrier(out, (0, 1), engine=nisa.engine.vector)

    def together(i, me, places, machine):
        return Exchange("all", (), (), 5.0, 70.0, meets=(0, 1))

    programs, machine = compiled(rendezvous, [(2, 2)], cores=2)
    rules = {**EXCHANGES, "core_barrier": together}
    timeline = replay(programs, [[], []], machine, exchanges=rules)
    last, first = timeline.cores[late], timeline.cores[1 - late]
    began = last.start[2]
    assert began == last.end[1] and first.start == [0.0]
    assert last.end[2] == last.done[2] == first.end[0] == first.done[0] == began + 70
    assert (first.held, first.busy_end) == ({0: (late, 2)}, {0: 5.0})
    assert (last.held, last.busy_end) == ({}, {})
    (delivery,) = timeline.deliveries
    assert (delivery.source, delivery.target) == ((late, 2), (1 - late, 0))
    assert (delivery.channel, delivery.sent, delivery.arrived) == ("all", began, began + 70)


def test_gpsimd_carries_small_tiles():
    def kernel(x):
        me = nl.program_id(0)
        a, b = (nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf) for _ in range(2))
        nisa.memset(dst=a, value=me)
        nisa.sendrecv(
            src=a,
            dst=b,
            send_to_rank=1 - me,
            recv_from_rank=1 - me,
            pipe_id=0,
            dma_engine=nisa.dma_engine.gpsimd_dma,
        )

    programs, machine = compiled(kernel, [(2, 2)], cores=2)
    for core in replay(programs, [[], []], machine).cores:
        assert core.queues[core.queue[1]] == "gpsimd"
        moved = 128 * 64 * 4 / TRN2.gpsimd_dma_gbps
        assert core.end[1] - core.start[1] == pytest.approx(moved + TRN2.sendrecv_gpsimd_ns)


def test_ranks_are_timed_alike():
    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    alone = replay(programs, [[], []], machine)
    world = replay(programs * 3, [[]] * 6, machine)
    assert [c.seat for c in world.cores[2:4]] == [Seat(1, 0, 1), Seat(1, 1, 1)]
    for rank in range(3):
        for core in range(2):
            assert world.cores[2 * rank + core].start == alone.cores[core].start
