"""Links between processes, here all in one: memory of others, leases, growth, ways around."""

import gc

import ml_dtypes
import numpy as np

from nki_dist.collectives.party import Bundle
from nki_dist.core_actor.payloads import MOST_LENT
from nki_dist.core_actor.records import INLINE, NAMES


def same(a, b):
    if isinstance(a, Bundle):
        return isinstance(b, Bundle) and all(map(same, a.arrays, b.arrays))
    if a is None:
        return b is None
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def payloads():
    rng = np.random.default_rng(0)
    yield None
    for dtype in (np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.uint16, np.int32):
        yield rng.integers(0, 100, (3, 5)).astype(dtype)
    yield np.zeros((0,), np.float32)
    yield np.zeros((4, 0), ml_dtypes.bfloat16)
    big = rng.standard_normal((2, INLINE)).astype(np.float32)
    yield big
    yield big.astype(ml_dtypes.bfloat16)
    yield big.T
    yield Bundle((big[0], rng.integers(0, 9, 7), np.zeros(0, np.float32)))
    yield Bundle((np.ones(3, np.float32), np.arange(4)))
    yield Bundle(())


def test_messages_arrive_as_they_were_sent(trio):
    sent = [trio.send(0, 1, p) for p in payloads()]
    got = trio.links[1].poll()
    assert trio.called == 0
    assert [m[:4] + m[5:] for m in got] == [m[:4] + m[5:] for m in sent]
    assert all(same(a.payload, b.payload) for a, b in zip(sent, got))


def test_large_payloads_are_read_where_they_are(trio):
    mine = trio.links[0].payloads.array((INLINE,), np.dtype(np.float32))
    mine[:] = 3
    trio.send(0, 1, mine)
    (m,) = trio.links[1].poll()
    assert np.shares_memory(m.payload, mine)
    assert not m.payload.flags.writeable
    trio.send(1, 2, m.payload)  # and so are those that are sent on
    (far,) = trio.links[2].poll()
    assert np.shares_memory(far.payload, mine)
    trio.send(2, 0, far.payload)
    (home,) = trio.links[0].poll()
    assert np.shares_memory(home.payload, mine)


def test_memory_is_used_again_when_the_last_reader_is_done(trio):
    def block():
        return trio.links[0].payloads.array((300_000,), np.dtype(np.uint8))

    first = block()
    address = first.ctypes.data
    trio.send(0, 1, first)
    del first
    (m,) = trio.links[1].poll()
    other = block()
    assert other.ctypes.data != address, "a payload that is under way was overwritten"
    trio.send(1, 2, m.payload)
    del m
    (far,) = trio.links[2].poll()
    other[:] = 9
    trio.links[1].payloads.collect()
    assert block().ctypes.data != address, "a payload that was sent on was overwritten"
    assert not any(far.payload)
    del far
    gc.collect()
    trio.links[1].payloads.collect()
    every = [block() for _ in range(20)]
    assert address in {b.ctypes.data for b in every}


def test_a_long_run_takes_no_more_memory(trio):
    for n in range(50):
        array = trio.links[n % 3].payloads.array((200_000,), np.dtype(np.uint8))
        array[:] = n
        trio.send(n % 3, (n + 1) % 3, array)
        (m,) = trio.links[(n + 1) % 3].poll()
        assert m.payload[0] == m.payload[-1] == n
        del array, m
    assert sum(links.payloads.nbytes for links in trio.links) < 3 * 3_000_000
    assert trio.called == 0


def test_what_the_machine_has_no_memory_for_goes_by_actor_calls(machine, trios):
    trio = trios()
    trio.send(0, 1, None)
    machine.left = 1_000_000
    arrays = [np.full(400_000, n, np.uint8) for n in range(5)]
    for array in arrays:
        trio.send(0, 1, array)
    _, *got = sorted(trio.links[1].poll(), key=lambda m: m.sequence)
    assert trio.called >= 3
    assert all(same(a, m.payload) for a, m in zip(arrays, got))
    machine.left = 0
    trio = trios()
    trio.send(0, 1, arrays[0])
    assert trio.called == 1
    assert same(trio.links[1].poll()[0].payload, arrays[0])


def test_more_payloads_under_way_than_bytes_to_clear(trio):
    trio.links[1].begin(1)
    view = trio.links[0].payloads.array((INLINE + 64,), np.dtype(np.uint8))
    for _ in range(MOST_LENT + 5):
        trio.send(0, 1, view)
    assert trio.called == 5
    assert len(trio.links[1].poll()) == MOST_LENT + 5


def test_more_descriptions_than_names(trio):
    for n in range(2 * NAMES + 3):
        what = {"op": "all_gather", "n": n}
        trio.send(0, 1, np.zeros(n % 50, np.uint8), what=what)
        (m,) = trio.links[1].poll()
        assert (m.what, m.payload.shape) == (what, (n % 50,))


def test_messages_to_a_process_that_never_looks_have_arrived(trio):
    """Cores that have finished take nothing; a deadlock of the others is certain all the same."""
    trio.send(0, 1, np.ones(3, np.float32))
    trio.send(2, 1, np.ones(INLINE, np.float32))
    assert (trio.links[0].sent, trio.links[2].sent) == (1, 1)
    assert trio.links[1].arrived(1) == 2


def test_messages_of_another_launch_are_dropped_or_kept(trio):
    trio.send(0, 1, np.ones(3, np.float32))
    for n in (0, 2):
        trio.links[n].begin(2)
    trio.send(0, 1, np.full(3, 2, np.float32))
    trio.inboxes[1].put((2, "early"))
    assert [m.payload[0] for m in trio.links[1].poll()] == [1]
    assert trio.links[1].poll() == []  # what belongs to launch 2 stays
    trio.links[1].begin(2)
    early, m = trio.links[1].poll()
    assert early == "early"
    assert m.payload[0] == 2
    assert (trio.links[1].arrived(1), trio.links[1].arrived(2)) == (0, 1)


def test_a_view_that_outlives_its_launch_frees_nothing(trio):
    trio.send(0, 1, np.ones(INLINE, np.float32))
    (old,) = trio.links[1].poll()
    trio.links[1].end()
    for n in (0, 2):
        trio.links[n].begin(2)
    trio.send(0, 2, np.full(INLINE, 2, np.float32))
    before = bytes(trio.links[0].payloads._table)
    del old
    gc.collect()
    assert bytes(trio.links[0].payloads._table) == before


def test_other_nodes_are_reached_by_actor_calls(trios):
    trio = trios(near=False)
    trio.send(0, 1, np.ones(INLINE, np.float32))
    assert trio.called == 1
    assert not trio.links[0].payloads.nbytes
    assert same(trio.links[1].poll()[0].payload, np.ones(INLINE, np.float32))


def test_whoever_has_no_neighbours_sleeps_too(trios):
    trio = trios(near=False)
    assert len(trio.links[1].wait(lambda: trio.send(0, 1, None))) == 1


def test_whoever_parks_is_told_before_it_sleeps(trio):
    parked = []
    trio.send(0, 1, None)
    assert len(trio.links[1].wait(lambda: parked.append(1))) == 1
    assert not parked

    def late():
        parked.append(1)
        trio.send(0, 1, None)  # came after the last look, before the sleep

    assert len(trio.links[1].wait(late)) == 1
    assert parked
