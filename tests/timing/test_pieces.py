"""Tensors that are written piece by piece: their room, their spills, and who loads first."""

from __future__ import annotations

from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import order
from nki_dist.timing.pieces import pieces
from tests.timing.build import compiled
from tests.timing.test_compiled import KIB, estimated, positions, spec

SLICES = 8


def by_slices(x: Any, columns: int, rounds: int = 3) -> Any:
    """Rounds of one tile that is loaded, reduced and done with slice by slice, in order."""
    out = nl.ndarray((128, rounds * SLICES), x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((128, rounds * SLICES), x.dtype, buffer=nl.sbuf)
    for n in range(rounds):
        tile = nl.ndarray((128, SLICES, columns), x.dtype, buffer=nl.sbuf)
        for k in range(SLICES):
            nisa.dma_copy(dst=tile[:, k], src=x[:, k])
        for k in range(SLICES):
            at = n * SLICES + k
            nisa.tensor_reduce(dst=sums[:, at : at + 1], op=nl.add, data=tile[:, k], axis=1)
    nisa.dma_copy(dst=out, src=sums)
    return out


def test_a_slice_is_free_before_its_tensor_is():
    """Of tiles of 128 KiB a partition one is on chip; the next one's slices follow one by one."""
    columns = 16 * KIB // 4
    p = estimated(by_slices, spec(128, SLICES, columns), columns)
    loads, core = positions(p, "dma_copy")
    reduced, _ = positions(p, "tensor_reduce")
    second = loads[SLICES : 2 * SLICES]
    semaphore = p.timeline.arch.semaphore_ns
    assert core.start[second[0]] < core.end[reduced[SLICES - 1]]  # the first tile is still in use
    for load, reader in zip(second, reduced[:SLICES], strict=True):
        assert core.start[load] >= core.end[reader] + semaphore


def accumulated(x: Any, tiles: int, slices: int) -> Any:
    """Two sums over tiles that don't all fit, a slice of each tile after the other."""
    out = nl.ndarray((tiles * 128, slices * 512), x.dtype, buffer=nl.shared_hbm)
    held = [nl.ndarray((128, slices, 512), x.dtype, buffer=nl.sbuf) for _ in range(tiles)]
    new = nl.load(x)
    for tile in held:
        nisa.memset(dst=tile, value=0.0)
    for k in range(slices):
        for tile in held:
            nisa.tensor_tensor(dst=tile[:, k], data1=tile[:, k], data2=new, op=nl.add)
    for n in range(tiles):
        nl.store(out[n * 128 : (n + 1) * 128], held[n].reshape((128, slices * 512)))
    return out


def test_what_is_spilled_is_a_slice_and_not_its_tensor():
    """Twice what fits: each slice goes once for its zeros and once for its sum, at most."""
    tiles, slices = 13, 16  # of 32 KiB a partition
    p = estimated(accumulated, spec(128, 512), tiles, slices, check="spill")
    everything = tiles * slices * 128 * 2 * KIB
    spilled = sum(c.bytes for c in p.changes if c.what == "spilled")
    assert everything / 4 < spilled <= 2 * everything


def passed_over(x: Any, tiles: int, slices: int) -> Any:
    """Sums over tiles, twice, from the first to the last slice."""
    out = nl.ndarray((tiles * 128, slices * 512), x.dtype, buffer=nl.shared_hbm)
    held = [nl.ndarray((128, slices, 512), x.dtype, buffer=nl.sbuf) for _ in range(tiles)]
    new = nl.load(x)
    for tile in held:
        for k in range(slices):
            nisa.tensor_copy(dst=tile[:, k], src=new)
    for tile in held * 2:
        for k in range(slices):
            nisa.tensor_tensor(dst=tile[:, k], data1=tile[:, k], data2=new, op=nl.add)
    for n in range(tiles):
        nl.store(out[n * 128 : (n + 1) * 128], held[n].reshape((128, slices * 512)))
    return out


def test_what_needs_room_does_not_wait_for_others_to_leave():
    """The slice used last leaves first; if the next waited for it, this would take 1.44 times."""
    fits, not_all = (estimated(passed_over, spec(128, 512), n, 32, check="spill") for n in (3, 4))
    assert not fits.changes and not_all.changes
    assert not_all.device_us / 4 < 1.25 * fits.device_us / 3


def two_operands(x: Any, y: Any, slices: int) -> Any:
    """All slices of one operand are loaded before those of the other; products need one of each."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, slices, 128), x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, slices, 512), y.dtype, buffer=nl.sbuf)
    for k in range(slices):
        nisa.dma_copy(dst=b[:, k], src=y[:, k])
    for k in range(slices):
        nisa.dma_copy(dst=a[:, k], src=x[:, k])
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    for k in range(slices):
        nisa.nc_matmul(dst=total, stationary=a[:, k], moving=b[:, k])
    result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_loads_take_turns_as_they_are_needed():
    x, y = spec(128, SLICES, 128), spec(128, SLICES, 512)
    p = estimated(two_operands, x, y, SLICES)
    moves, core = positions(p, "dma_copy")
    first, second = moves[:SLICES], moves[SLICES : 2 * SLICES]
    order = sorted((*first, *second), key=lambda at: core.start[at])
    assert order == [at for pair in zip(first, second, strict=True) for at in pair]
    written = estimated(two_operands, x, y, SLICES, schedule="program")
    (products, now), (_, before) = (positions(q, "nc_matmul") for q in (p, written))
    assert now.start[products[0]] < before.start[products[0]]


def many_sums(x: Any, y: Any, sums: int, slices: int) -> Any:
    """Products of several sums, each over slices that come late."""
    out = nl.ndarray((128, sums * 512), nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, slices, sums * 128), x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, slices, 512), y.dtype, buffer=nl.sbuf)
    for k in range(slices):
        nisa.dma_copy(dst=b[:, k], src=y[:, k])
        nisa.dma_copy(dst=a[:, k], src=x[:, k])
    for n in range(sums):
        total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
        for k in range(slices):
            nisa.nc_matmul(dst=total, stationary=a[:, k, n * 128 : (n + 1) * 128], moving=b[:, k])
        result = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[:, n * 512 : (n + 1) * 512], src=result)
    return out


def test_tensor_begins_the_sums_that_it_has_operands_for():
    """Sums over 48 slices: the second has begun before a third of the slices is there."""
    sums, slices = 4, 48
    p = estimated(many_sums, spec(128, slices, sums * 128), spec(128, slices, 512), sums, slices)
    products, core = positions(p, "nc_matmul")
    loads, _ = positions(p, "dma_copy")
    assert core.start[products[slices]] < core.end[loads[2 * slices // 3]]


def test_beta1_has_room_for_whole_tensors():
    """Its compiler has tiles of its own; nothing is cut."""
    (program,), _ = compiled(lambda x: by_slices(x, 512), [(128, SLICES, 512)])
    graph = order(program)
    (tile, *_) = [
        s.number for s in program.storages if s.shape == (128, SLICES, 512) and s.region.on_chip
    ]
    assert len(pieces(graph, Plan(reorders=True, look_ahead=16), {tile}).spans) == SLICES
    assert len(pieces(graph, Plan(reorders=True), {tile}).spans) == 1
