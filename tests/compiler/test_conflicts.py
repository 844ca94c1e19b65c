"""The watch list against a search through all run-time indices."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.compiler.passes.conflicts import find_conflicts
from nki_dist.program import Access, Instruction, MemoryRegion, Program, Storage
from nki_dist.program.access import Dynamic
from tests.compiler.compiling import compiled

INDICES = range(5)


def _watched(theirs: slice) -> list[list[int]]:
    """Core 0 stores rows 0 to 2 of a shared tensor, core 1 reads `theirs`."""

    def kernel(a):
        out = nl.ndarray((8, 5), nl.float32, buffer=nl.shared_hbm, name="out")
        tile = nl.ndarray((8, 5), nl.float32, buffer=nl.sbuf)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out[0:3], src=a[0:3])  # 0
        else:
            nisa.memset(dst=tile, value=0)  # 0
            nisa.dma_copy(dst=tile[theirs], src=out[theirs])  # 1
        return out

    return [p.facts["watched"] for p in compiled(kernel, ((8, 5), np.float32), lnc=2).programs]


def test_a_load_is_watched_where_the_other_core_stores() -> None:
    assert _watched(slice(2, 4)) == [[0], [1]]
    assert _watched(slice(3, 5)) == [[], []]


def test_a_core_may_load_an_argument_that_the_other_updates_in_place() -> None:
    """Published kernels do so to caches, and mask what they load: what it holds doesn't count."""

    def kernel(a):
        out = nl.ndarray((2, 4, 5), nl.float32, buffer=nl.shared_hbm, name="out")
        tile = nl.ndarray((4, 5), nl.float32, buffer=nl.sbuf)
        if nl.program_id(0) == 1:
            nisa.memset(dst=tile, value=3)
            nisa.dma_copy(dst=a, src=tile)
        else:
            nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=tile)
        return out

    a = np.zeros((4, 5), np.float32)
    assert nki.simulate(nki.jit(kernel))[2](a)[1, 0, 0] == a[0, 0] == 3


def test_a_launch_is_judged_by_itself() -> None:
    """Both cores store the same and load it, next time something else."""

    def kernel(a):
        out = nl.ndarray((4, 5), nl.float32, buffer=nl.shared_hbm, name="out")
        tile = nl.load(a)
        nisa.dma_copy(dst=out, src=tile)
        nisa.dma_copy(dst=tile, src=out)
        return out

    launch = nki.simulate(nki.jit(kernel))[2]
    for value in (1, 2, 3):
        x = np.full((4, 5), value, np.float32)
        assert launch(x).tobytes() == x.tobytes()


def _access(rng: random.Random, storage: Storage) -> Access:
    dtype = rng.choice((dtypes.bfloat16, dtypes.float32))
    dims = rng.randint(1, 2)
    shape = tuple(rng.randint(1, 3) for _ in range(dims))
    strides = tuple(rng.choice((1, 2, 3, 7)) for _ in range(dims))
    kind = rng.choice(("none", "scalar", "vector"))
    dynamic = None
    if kind != "none":
        dynamic = Dynamic(kind, None, rng.choice((4, 8, 12)), len(INDICES))
    return Access(storage, rng.randint(0, 12), shape, strides, dtype, dynamic)


def _bytes(a: Access) -> set[int]:
    """Every byte that the access can touch, whatever its index or indices."""
    found = set()
    shape = a.shape
    starts = [0]
    if a.dynamic is not None:
        starts = [i * a.dynamic.stride for i in INDICES]
        if a.dynamic.kind == "vector":
            shape = (1, *shape[1:])
    for start, *index in product(starts, *map(range, shape)):
        at = a.offset + start + sum(i * s for i, s in zip(index, a.strides, strict=True))
        size = a.dtype.itemsize
        found.update(range(at * size, (at + 1) * size))
    return found


def _stores(core: int, places: list[Access]) -> Program:
    """A program that stores a tile there."""
    tile = Access(
        Storage(1, MemoryRegion.sbuf, (1, 1), dtypes.float32), 0, (1, 1), (1, 1), dtypes.float32
    )
    program = Program("k", "trn2", core, 2)
    for n, place in enumerate(places):
        program.body.append(Instruction("dma_copy", {"dst": place, "src": tile}, "dma", -1, n))
    return program


def test_whatever_may_meet_is_watched_and_much_that_cannot_is_not() -> None:
    rng = random.Random(5)
    storage = Storage(0, MemoryRegion.shared_hbm, (4096,), dtypes.bfloat16, "t", "shared")
    spared = 0
    for _ in range(1000):
        mine, theirs = _access(rng, storage), [_access(rng, storage) for _ in range(2)]
        programs = [_stores(0, [mine]), _stores(1, theirs)]
        find_conflicts(programs)
        watched = programs[0].facts["watched"] == [0]
        if _bytes(mine) & set().union(*map(_bytes, theirs)):
            assert watched, (mine, theirs)
        else:
            spared += not watched
    assert spared > 100
