"""What keeps time beside the events of a replay: the DMA engines of a core, the clock of Tensor."""

import pytest

from nki_dist import arch
from nki_dist.timing.dma import DmaEngines, Transfer
from nki_dist.timing.engines import TensorClock
from nki_dist.timing.stack import HbmBandwidth

TRN2 = arch.get("trn2")
PACKET = 160.0  # ns of a packet of large transfers


def large(parts, hbm_read=0):
    return Transfer("none", "", 8.0, 1000.0, tuple(parts), 0.0, PACKET, hbm_read, 0)


def small(engine, packets, ns):
    return Transfer("none", "", 8.0, 1000.0, ((engine, ns),), packets, ns / packets, 0, 0)


def test_dma_engines_report_whom_a_transfer_waits_for():
    machine = TRN2.with_values(hbm_stack_gbps=716.8, hbm_efficiency=1.0)
    engines, stack = DmaEngines(machine), HbmBandwidth(machine)
    wide, narrow = large((e, 50.0) for e in range(16)), large([(3, 20.0)], 716800)
    assert engines.takes_at(wide) <= 10.0
    assert engines.run(0, wide, 10.0, 10.0, stack) == (60.0, -1)
    assert engines.takes_at(narrow) <= 30.0  # one before it
    # 1000 ns of the stack, from 60 on; its engine waits for that, too.
    assert engines.run(1, narrow, 30.0, 30.0, stack) == (1060.0, 0)
    assert engines.takes_at(wide) > 59.0  # two before it, on engine 3
    assert engines.takes_at(wide) <= 60.0
    assert engines.run(2, wide, 40.0, 60.0, stack) == (1110.0, 1)
    assert (
        engines.takes_at(narrow) == 1060.0
        and engines.free[0] == 110.0
        and engines.free[3] == 1110.0
    )
    assert engines.busy == [100.0] * 3 + [120.0] + [100.0] * 12


SHARED = TRN2.with_values(hbm_stack_gbps=600.0, hbm_efficiency=1.0, dma_engine_gbps=25.0)


def moved(*, ns, gbps):
    return large(((e, ns) for e in range(16)), round(ns * gbps))


def test_cores_that_want_more_than_a_stack_has_get_equal_shares():
    """Each wants 400 of 600: 300 while both move. The first keeps its end; what follows is late."""
    (a, b), stack = (DmaEngines(SHARED), DmaEngines(SHARED)), HbmBandwidth(SHARED)
    t = moved(ns=30.0, gbps=400)
    assert a.run(0, t, 0.0, 0.0, stack)[0] == 30.0
    assert b.run(0, t, 0.0, 0.0, stack)[0] == pytest.approx(40.0)
    assert a.takes_at(t) == 0.0 and a.free == pytest.approx([40.0] * 16)
    assert a.run(1, t, 0.0, 0.0, stack)[0] == pytest.approx(70.0)  # b has moved all it has to
    assert a.busy == [60.0] * 16


def test_a_core_that_wants_less_than_its_share_leaves_the_rest():
    """200 of 600 for one: the other has its 400, and neither is late."""
    (a, b), stack = (DmaEngines(SHARED), DmaEngines(SHARED)), HbmBandwidth(SHARED)
    assert a.run(0, moved(ns=30.0, gbps=200), 0.0, 0.0, stack)[0] == 30.0
    assert b.run(0, moved(ns=30.0, gbps=400), 0.0, 0.0, stack)[0] == 30.0
    assert a.free == [30.0] * 16


def test_what_a_core_left_is_not_made_up_for():
    """15 ns alone at 400, 15 together at 300, and what is left alone again."""
    (a, b), stack = (DmaEngines(SHARED), DmaEngines(SHARED)), HbmBandwidth(SHARED)
    t = moved(ns=30.0, gbps=400)
    assert a.run(0, t, 0.0, 0.0, stack)[0] == 30.0
    # a has 6,000 bytes left at 15: 20 ns at 300, in which b moves as many of its 12,000
    assert b.run(0, t, 15.0, 15.0, stack)[0] == pytest.approx(15 + 20 + 15)
    assert a.free == pytest.approx([35.0] * 16)


def test_engines_asked_for_the_same_are_as_each_by_itself():
    """Halves, all, and a third of the engines, some of it in small packets: the same to the bit."""
    half, all_of_them = large((e, 70.1) for e in range(8)), large((e, 50.3) for e in range(16))
    uneven = large([(4, 20.7), (5, 20.7), (6, 60.9), (7, 60.9), (8, 10.3)], 7168)
    little = Transfer("none", "", 8.0, 1.0, tuple((e, 30.9) for e in range(8)), 3, 10.3, 0, 0)
    turns = (half, all_of_them, uneven, all_of_them, half, uneven)
    found = []
    for engines in (DmaEngines(TRN2), DmaEngines(TRN2, [*turns, little])):
        stack, seen = HbmBandwidth(TRN2), []
        for who, t in enumerate(turns):
            at = 13.7 * who
            look = engines.scatter(little, at)
            seen += [look, engines.takes_at(t), engines.run(who, t, at, at, stack)]
            while (again := engines.scattered(little, look)) > look:
                look = again
            seen += [look, *engines.busy]
        found.append((seen, len(engines.free)))
    (apart, sixteen), (together, blocks) = found
    assert apart == together and (sixteen, blocks) == (16, 5)


def test_a_small_packet_waits_for_a_turn_of_a_large_one():
    """A large packet takes 160 ns; small ones of 40 ns get 1 of 5 ns beside them."""
    engines, stack = DmaEngines(TRN2), HbmBandwidth(TRN2)
    engines.run(0, large([(2, 1000.0)]), 0.0, 0.0, stack)
    assert engines.scatters(small(2, 10, 400.0))
    t = small(2, 10, 400.0)
    look = engines.scatter(t, 100.0)
    assert look == 1000.0  # by then 900 / 5 = 180 ns of its work are done, and it is alone
    assert not engines.scatters(small(2, 1, 40.0)) and engines.scatters(small(1, 1, 40.0))
    assert engines.scattered(t, look) == pytest.approx(1220.0)
    assert engines.scattered(t, 1220.0) == pytest.approx(1220.0)
    assert engines.scatters(t) and engines.busy[2] == 1400.0


def test_engines_nobody_asks_for_need_not_move_small_packets_before_all_do():
    first, second = small(2, 10, 400.0), small(5, 10, 400.0)
    engines = DmaEngines(TRN2, [first, second])
    engines.scatter(first, 0.0)
    assert not engines.all_scatter()
    engines.scatter(second, 0.0)
    assert engines.all_scatter() and not DmaEngines(TRN2, [first]).all_scatter()


def test_large_packets_make_up_for_the_small_ones_beside_them():
    engines, stack = DmaEngines(TRN2), HbmBandwidth(TRN2)
    engines.run(0, large([(2, 1000.0)]), 0.0, 0.0, stack)
    t = small(2, 1, 40.0)
    over = engines.scatter(t, 100.0)
    assert over == 300.0 and engines.scattered(t, over) == over
    assert engines.free[2] == 1040.0
    assert engines.run(1, large([(2, 10.0)]), 300.0, 1000.0, stack)[0] == 1050.0


def test_the_clock_of_tensor_slows_down_when_idle():
    clock = TensorClock(TRN2)
    assert clock.run(0.0, 1000.0) == 2000.0
    assert clock.run(2000.0, 1000.0) == 3500.0  # 1000 ns at half speed, then full
    assert clock.run(3500.0, 1000.0) == 4500.0  # the first window was busy
    assert clock.run(6000.0, 100.0) == 6100.0  # the second isn't over
    assert clock.run(9000.0, 1000.0) == 11000.0  # now it is, and it wasn't busy
    later = 9000 + 2000.5 / TRN2.tensor_busy_fraction  # half a nanosecond less than is asked for
    assert clock.run(later, 10.0) == later + 20.0
    exact = TensorClock(TRN2)
    assert [exact.run(0.0, 1000.0), exact.run(4000.0, 2000.0)] == [2000.0, 6000.0]
    assert exact.run(8000.0, 10.0) == 8010.0
    assert TensorClock(arch.get("trn1")).run(0.0, 1000.0) == 1000.0
