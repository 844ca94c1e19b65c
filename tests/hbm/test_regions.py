"""Blocks of regions: that no two meet, that they come back, and what is kept."""

import gc
import random
import threading
from itertools import pairwise

from nki_dist.hbm.regions import LARGEST, LEAST, Regions
from nki_dist.ops.alignment import ALIGNMENT, padded


def parts(blocks):
    return sorted((*b.place, b.place[1] + padded(b.nbytes)) for b in blocks)


def test_blocks_do_not_meet_and_lie_in_their_regions():
    regions, chance, blocks = Regions(), random.Random(5), []
    for _ in range(2000):
        if blocks and chance.random() < 0.48:
            blocks.pop(chance.randrange(len(blocks)))
        else:
            blocks.append(regions.take(chance.choice([0, 1, 63, 64, 65, 5000, 200_000])))
        there = parts(blocks)
        some = [part for part in there if part[1] < part[2]]
        for (region, _, end), (other, start, _) in pairwise(some):
            assert region != other or end <= start
        for region, start, end in there:
            assert start % ALIGNMENT == 0 and end <= regions.sizes[region]
        assert regions.taken == sum(end - start for _, start, end in there)


def test_the_same_round_finds_the_same_places():
    regions = Regions()

    def round_():
        blocks = [regions.take(n) for n in (100, 70_000, 3, 400_000, 64)]
        del blocks[1]
        blocks.append(regions.take(20_000))
        return [b.place for b in blocks]

    first = round_()
    for _ in range(5):
        gc.collect()
        assert round_() == first
    assert len(regions.sizes) < 4


def test_small_tensors_share_regions_and_large_ones_get_their_bytes():
    regions = Regions()
    blocks = [regions.take(100) for _ in range(200)]
    assert regions.sizes == {0: LEAST}
    blocks += [regions.take(1000) for _ in range(2000)]
    assert len(regions.sizes) < 12 and sum(regions.sizes.values()) < 5 * regions.taken
    large = regions.take(3 * LARGEST + 1)
    assert regions.sizes[large.place[0]] == padded(3 * LARGEST + 1)


def test_many_ranks_get_little_more_than_they_asked_for():
    regions = Regions(ranks=64)
    blocks = [regions.take(n) for n in (64 << 20, 100, 100, 300_000)]
    assert 64 * sum(regions.sizes.values()) < 1.01 * 64 * (64 << 20) + 2 * LARGEST
    assert len({b.place for b in blocks}) == 4


def test_what_nobody_has_is_dropped_but_for_some():
    regions = Regions()
    blocks = [regions.take(n << 20) for n in (40, 30, 20)]
    numbers = [b.place[0] for b in blocks]
    assert list(regions.empty(0)) == []
    del blocks[1:]
    assert list(regions.empty(25 << 20)) == [numbers[1]], "the smaller one stays"
    assert list(regions.empty(25 << 20)) == []
    assert set(regions.sizes) == {numbers[0], numbers[2]}
    assert regions.take(19 << 20).place[0] == numbers[2]
    blocks.clear()
    assert sorted(regions.empty(0)) == sorted([numbers[0], numbers[2]])
    assert regions.sizes == {} and regions.taken == 0


def test_numbers_of_regions_are_not_used_again():
    regions, seen = Regions(), set()
    for _ in range(5):
        block = regions.take(1 << 20)
        assert block.place[0] not in seen
        seen.add(block.place[0])
        regions.forget(None if len(seen) % 2 else block.place[0])
        assert regions.sizes == {}
        del block  # comes back to nothing
        assert regions.taken == 0 and regions.sizes == {}


def test_blocks_may_be_dropped_in_any_thread():
    regions, stop = Regions(), threading.Event()
    dropped = []

    def drop():
        while not stop.is_set() or dropped:
            if dropped:
                dropped.pop()

    threads = [threading.Thread(target=drop) for _ in range(3)]
    for thread in threads:
        thread.start()
    kept = []
    for n in range(3000):
        block = regions.take(64 * (1 + n % 50))
        (kept if n % 100 == 0 else dropped).append(block)
        del block
    stop.set()
    for thread in threads:
        thread.join()
    gc.collect()
    assert regions.taken == sum(padded(b.nbytes) for b in kept)
