"""Finding what overlaps, quickly: compared with looking at all pairs."""

import random
from types import SimpleNamespace

import pytest

from nki_dist.program import MemoryRegion
from nki_dist.timing.cells import Cells, overlap
from nki_dist.timing.footprint import territories


def storages(seed):
    """Placed tensors; some of them at the same place, some nested, in two memories."""
    pick = random.Random(seed)
    spread = pick.choice([20, 200])
    return [
        SimpleNamespace(
            number=number,
            region=pick.choice([MemoryRegion.sbuf, MemoryRegion.psum]),
            partitions=(rows := pick.randrange(1, 9)),
            partition_bytes=(nbytes := pick.randrange(1, 30)),
            shape=(rows, nbytes),
            dtype=SimpleNamespace(itemsize=1),
            address=(pick.randrange(12), pick.randrange(spread)),
            placed=True,
        )
        for number in range(pick.randrange(1, 14))
    ]


def box(s):
    (partition, byte), rows, nbytes = s.address, s.partitions, s.partition_bytes
    return partition, partition + rows, byte, byte + nbytes


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_tensors_that_overlap_share_a_key(start):
    for seed in range(start, start + 100):
        _check_keys(storages(seed))


def _check_keys(placed):
    group = {s.number: {s.number} for s in placed}
    for a in placed:
        for b in placed:
            if a.region is b.region and overlap(box(a), box(b)):
                merged = group[a.number] | group[b.number]
                for n in merged:
                    group[n] = merged
    keys, found = territories(placed)
    assert keys == [min(group[s.number]) for s in placed]
    assert [t.base is not None for t in found] == [len(group[s.number]) > 1 for s in placed]


@pytest.mark.parametrize("seed", range(20))
def test_cells_know_their_neighbours(seed):
    pick = random.Random(seed)
    dimensions = pick.randrange(1, 4)
    extent = pick.choice([3, 40])  # small boxes, or some that cross many others

    def some_box():
        found = []
        for _ in range(dimensions):
            low = pick.randrange(60)
            found += [low, low + 1 + pick.randrange(extent)]
        return tuple(found)

    boxes = [some_box() for _ in range(150)]
    cells = Cells()
    made = [cells.cell(b) for b in boxes]
    for cell in made:
        near = {other.box for other, _ in cell.near}
        assert near == {b for b in boxes if overlap(b, cell.box) and b != cell.box}
        assert len(near) == len(cell.near)
        for other, covered in cell.near:
            pairs = zip(cell.box[::2], cell.box[1::2], other.box[::2], other.box[1::2], strict=True)
            assert covered == all(a <= c and d <= b for a, b, c, d in pairs)
