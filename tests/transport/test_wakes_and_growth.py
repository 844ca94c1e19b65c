"""Links: who is woken, how rings grow, and what closing lets go of."""

import gc
from types import SimpleNamespace

import numpy as np

from nki_dist.core_actor import links as module
from nki_dist.core_actor.doorbell import Doorbell
from nki_dist.core_actor.links import FIRST_RING
from nki_dist.core_actor.records import INLINE
from nki_dist.core_actor.ring import ASLEEP, HEADER


class Interrupted:
    """A doorbell, and something that happens once its owner sleeps."""

    def __init__(self, doorbell, happens):
        self.doorbell, self.happens = doorbell, happens
        self.close = doorbell.close
        self.rang = []

    def wait(self):
        self.happens()
        self.rang.append(self.doorbell.wait())
        return self.rang[-1]


def test_a_message_wakes_who_sleeps_and_nobody_else(trio):
    trio.send(0, 1, None)
    links = trio.links[1]
    assert len(links.poll()) == 1
    links._doorbell = doorbell = Interrupted(links._doorbell, lambda: trio.send(0, 1, None))
    assert len(links.wait(lambda: None)) == 1
    assert doorbell.rang == [True]
    trio.send(0, 1, None)  # it is awake again
    assert not doorbell.doorbell.wait()


def test_whoever_says_that_it_sleeps_looks_again_after_a_fence(trio):
    """Else the last look could come before the words were seen, and nobody would ring."""
    trio.send(0, 1, None)
    links = trio.links[1]
    assert len(links.poll()) == 1
    ((ring, _),) = links._incoming
    fences = []
    ring.fence = lambda: fences.append(ring.words[ASLEEP])

    def happens():
        assert fences == [1]
        trio.send(0, 1, None)

    links._doorbell = Interrupted(links._doorbell, happens)
    assert len(links.wait(lambda: None)) == 1


def test_a_full_ring_is_replaced_by_one_four_times_as_large(trio, monkeypatch):
    """Up to the largest; then messages are actor calls, until the reader has read."""
    monkeypatch.setattr(module, "LARGEST_RING", 16 * FIRST_RING)
    payload = np.zeros(INLINE, np.uint8)
    while not trio.called:
        trio.send(0, 1, payload)
    assert sorted(m.sequence for m in trio.links[1].poll()) == list(range(trio.sequence))
    sizes = [HEADER + ring.capacity for ring, _ in trio.links[1]._incoming]
    assert sizes == [FIRST_RING, 4 * FIRST_RING, 16 * FIRST_RING]  # in the order of their records
    trio.send(0, 1, payload)
    assert trio.called == 1


def test_a_payload_that_no_ring_took_is_not_kept(trio, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_RING", FIRST_RING)
    while not trio.called:
        trio.send(0, 1, np.zeros(INLINE + 1, np.uint8))
    assert len(trio.links[0].payloads._lent) == trio.sequence - 1 > 0


def stacks_of(trio, process):
    """A launch begins in which a process has stacks that others can map."""
    handle = SimpleNamespace(memory=np.ones(4 << 20, np.uint8))
    for n, links in enumerate(trio.links):
        links.begin(1, (handle.memory, handle) if n == process else None)
    return handle.memory


def test_stacks_are_told_of_once(trio):
    told, mine = [], stacks_of(trio, 0)
    trio.links[1].attach, attach = told.append, trio.links[1].attach
    for n in range(3):
        trio.send(0, 1, mine[: 1 << 20])
        assert bool(trio.links[1].poll()) == (n > 0)  # not before it has them
        for one in told:
            attach(one)
            assert np.shares_memory(trio.links[1].poll()[0].payload, mine)
        assert (len(told) > 0) == (n == 0)
        told.clear()


def test_stacks_that_others_have_told_of_are_told_of_in_turn(trio):
    mine = stacks_of(trio, 0)
    trio.send(0, 1, mine[: 1 << 20])
    (m,) = trio.links[1].poll()
    trio.send(1, 2, m.payload)
    assert np.shares_memory(trio.links[2].poll()[0].payload, mine)
    trio.send(1, 0, m.payload)  # whose they are
    assert np.shares_memory(trio.links[0].poll()[0].payload, mine)


def test_a_ring_that_is_found_while_its_reader_sleeps_says_so(trio):
    """Else who writes into it wouldn't wake the reader, who has the ring's token behind it."""
    links = trio.links[1]
    trio.links[0]._open(1, FIRST_RING)
    links._asleep(1)
    assert links.poll() == []
    assert links._incoming[0][0].words[ASLEEP] == 1
    links._asleep(0)
    assert links._incoming[0][0].words[ASLEEP] == 0


def test_who_makes_a_ring_wakes_its_reader(trio):
    links = trio.links[1]
    links._doorbell = doorbell = Interrupted(links._doorbell, lambda: trio.send(0, 1, None))
    assert len(links.wait(lambda: None)) == 1
    assert doorbell.rang == [True]


def test_who_has_no_memory_is_sent_actor_calls(trios):
    """It couldn't be given it, which others see in the memory itself."""
    trio = trios()
    trio.memory.head(1)[0] = 0
    trio.send(0, 1, None)
    trio.send(0, 2, None)
    assert trio.called == 1 and len(trio.links[2].poll()) == 1


def test_an_old_ring_is_kept_until_it_was_read(trio):
    """Its memory isn't given to payloads, though the writer has another ring."""
    small = np.arange(1000, dtype=np.float32)
    for n in range(3 * FIRST_RING // small.nbytes):
        trio.send(0, 1, small + n)
    blocks = [
        trio.links[0].payloads.array((FIRST_RING // 2,), np.dtype(np.uint8)) for _ in range(20)
    ]
    for block in blocks:
        block[:] = 255
    got = sorted(trio.links[1].poll(), key=lambda m: m.sequence)
    assert [m.payload[0] for m in got] == list(range(trio.sequence))


def test_memory_of_a_ring_was_used_before(trio):
    """Counters of a new ring begin at zero whatever lay there."""
    block = trio.links[0].payloads.array((2 * FIRST_RING,), np.dtype(np.uint8))
    block[:] = 77
    del block
    sent = [trio.send(0, 1, None) for _ in range(3)]
    assert trio.links[1].arrived(1) == 3
    assert [m.sequence for m in trio.links[1].poll()] == [m.sequence for m in sent]
    assert trio.links[1].poll() == []


def test_whoever_parks_lets_go_of_what_others_are_done_with(trio):
    trio.send(0, 1, np.ones(INLINE, np.float32))
    payloads = trio.links[0].payloads
    assert len(trio.links[1].poll()) == 1 == len(payloads._lent)
    gc.collect()
    trio.links[0].wait(lambda: trio.send(1, 0, None))
    assert not payloads._lent


def test_what_was_sent_is_counted_from_the_begin_of_a_launch(trio):
    links = trio.links[0]
    trio.send(0, 1, None)
    trio.send(0, 2, np.ones(INLINE, np.float32))
    assert links.sent == 2
    links.begin(2)
    assert links.sent == 0


def test_closed_links_let_go_of_their_bell_and_of_memory_of_others(trio):
    trio.send(0, 1, stacks_of(trio, 0)[: 2 * INLINE])
    (m,) = trio.links[1].poll()
    assert trio.links[1].payloads._mapped
    name = trio.links[1]._doorbell.name
    trio.links[1].close()
    assert not trio.links[1].payloads._mapped
    assert trio.links[1].arrived(1) == 0
    Doorbell(trio.folder, name, 0.01).close()  # the name is free
    assert m.payload[0] == 1  # arrays that somebody still has stay readable
