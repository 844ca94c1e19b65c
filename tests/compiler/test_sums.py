"""What a matmul adds to: the state by columns or elements is that of every element by itself."""

import numpy as np
import pytest

from nki_dist.compiler.passes.accumulate import Sums
from nki_dist.dtypes import bfloat16, float32
from nki_dist.program import Access, MemoryRegion, Storage

PARTITIONS, COLUMNS = 6, 10


def access(storage, rows, columns, dtype):
    """A box of a storage."""
    pitch = storage.partition_bytes // dtype.itemsize
    (r0, r1), (c0, c1) = rows, columns
    return Access(storage, r0 * pitch + c0, (r1 - r0, c1 - c0), (pitch, 1), dtype)


def span(rng, most, whole):
    """Somewhere in 0...most, or all of it."""
    if whole:
        return 0, most
    first = int(rng.integers(most))
    return first, int(rng.integers(first, most)) + 1


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_state_of_every_element(seed):
    rng = np.random.default_rng(seed)
    dtype = (float32, bfloat16)[seed % 2]
    storage = Storage(0, MemoryRegion.psum, (PARTITIONS, COLUMNS), dtype)
    sums, every = Sums(storage), np.zeros((PARTITIONS, COLUMNS), bool)
    for _ in range(30):
        rows = span(rng, PARTITIONS, rng.random() < (0.9, 0.5)[seed // 2 % 2])
        columns = span(rng, COLUMNS, rng.random() < 0.1)
        a = access(storage, rows, columns, dtype)
        part = every[slice(*rows), slice(*columns)]
        wanted = bool(part.all()) if part.all() or not part.any() else None
        assert sums.read(a) is wanted
        value = bool(rng.integers(2))
        sums.write(a, value)
        part[...] = value
    found = sums.elements(access(storage, (0, PARTITIONS), (0, COLUMNS), dtype))
    assert np.array_equal(np.broadcast_to(found, every.shape), every)
