"""Addresses and capacities: placement never overlaps, and "full" means no allocator could do it."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch, dtypes
from nki_dist.compiler.passes.allocate import allocate, check_hbm
from nki_dist.compiler.passes.overwritten import find_rivals
from nki_dist.errors import NkiValidationError, OutOfMemoryError
from nki_dist.program import MemoryRegion, Program, Storage
from tests.compiler.compiling import compiled, line_of

TRN2 = arch.get("trn2")
SBUF = TRN2.sbuf_usable_bytes


def _program(*tiles: tuple, region: MemoryRegion = MemoryRegion.sbuf) -> Program:
    """A program without instructions; tiles are (shape, dtype, first, last[, address])."""
    program = Program("k", "trn2", 0, 1)
    program.locations = [("k.py", n + 1, "k") for n in range(len(tiles))]
    for n, (shape, dtype, first, last, *address) in enumerate(tiles):
        s = Storage(n, region, shape, dtype, f"t{n}", location=n, address=(address or [None])[0])
        s.first, s.last = first, last
        program.storages.append(s)
    return program


def _bytes(s: Storage) -> tuple[range, range]:
    assert s.address is not None
    p, b = s.address
    return range(p, p + s.partitions), range(b, b + s.partition_bytes)


def _collide(a: Storage, b: Storage) -> bool:
    def meet(x: range, y: range) -> bool:
        return x.start < y.stop and y.start < x.stop

    alive = a.first <= b.last and b.first <= a.last
    return alive and all(meet(x, y) for x, y in zip(_bytes(a), _bytes(b), strict=True))


@pytest.mark.parametrize("region", [MemoryRegion.sbuf, MemoryRegion.psum])
@pytest.mark.parametrize("seed", range(4))
def test_tensors_alive_together_never_share_bytes(region: MemoryRegion, seed: int) -> None:
    rng = random.Random(seed)
    tiles = []
    for n in range(150):
        free = rng.choice((1, 3, 17, 128, 511, 512))
        tiles.append(((rng.choice((1, 31, 32, 64, 96, 128)), free), dtypes.float32, n, n + 3))
    program = _program(*tiles, region=region)
    allocate(program, TRN2)
    placed = [s for s in program.storages if s.address is not None]
    assert len(placed) >= 140
    assert sorted(program.facts["unplaced"]) == [
        s.number for s in program.storages if s.address is None
    ]
    for n, a in enumerate(placed):
        partitions, span = _bytes(a)
        assert partitions.stop <= 128 and span.start % 4 == 0
        assert span.stop <= (16384 if region is MemoryRegion.psum else SBUF)
        assert partitions.start in {1: (0, 32, 64, 96), 2: (0, 64)}.get(
            -(-a.partitions // 32), (0,)
        )
        if region is MemoryRegion.psum:
            assert span.start // 2048 == (span.stop - 1) // 2048
        assert not any(_collide(a, b) for b in placed[n + 1 :])


def test_a_dead_tensor_gives_its_bytes_back() -> None:
    tile = ((128, SBUF // 4), dtypes.float32)
    program = _program((*tile, 0, 3), (*tile, 4, 9))
    allocate(program, TRN2)
    assert [s.address for s in program.storages] == [(0, 0), (0, 0)]
    assert program.facts["peak_sbuf"] == SBUF and program.facts["unplaced"] == []


def test_peak_counts_what_is_alive_together() -> None:
    program = _program(
        ((128, 100), dtypes.float32, 0, 2),
        ((128, 50), dtypes.bfloat16, 2, 5),
        ((128, 75), dtypes.float32, 3, 5),
    )
    allocate(program, TRN2)
    assert program.facts["peak_sbuf"] == 400 + 100
    assert program.facts["peak_psum"] == program.facts["peak_hbm"] == 0


def test_overflow_names_capacity_need_line_and_the_largest_tensors() -> None:
    def kernel(a):
        out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        small = nl.ndarray((128, 10), dtype=nl.float32, buffer=nl.sbuf, name="small")
        large = nl.ndarray((128, 30000), dtype=nl.float32, buffer=nl.sbuf, name="large")
        more = nl.ndarray((128, 25000), dtype=nl.float32, buffer=nl.sbuf, name="more")
        nisa.memset(dst=small, value=0)
        nisa.memset(dst=large, value=0)
        nisa.memset(dst=more, value=0)
        nisa.tensor_copy(dst=small, src=large[:, 0:10])
        nisa.dma_copy(dst=out, src=more[:, 0:1])
        nisa.dma_copy(dst=out, src=small[:, 0:1])
        return out

    with pytest.raises(OutOfMemoryError) as caught:
        compiled(kernel, ((4, 4), np.float32))
    text = str(caught.value)
    assert f"SBUF has {SBUF} usable bytes per partition" in text
    assert f"needs {40 + 120000 + 100000}" in text
    assert re.search(r"large \(128x30000 float32 in sbuf\), 120000 bytes.*more \(128x25000", text)
    assert caught.value.location == line_of(kernel, "more = ")
    assert line_of(kernel, "large = ") in text
    assert caught.value.core == 0


def test_an_exact_fit_passes_and_four_bytes_more_do_not() -> None:
    half = SBUF // 8
    fits = _program(
        ((128, half), dtypes.float32, 0, 1), ((128, SBUF // 4 - half), dtypes.float32, 1, 2)
    )
    allocate(fits, TRN2)
    assert fits.facts["peak_sbuf"] == SBUF
    over = _program(
        ((128, half), dtypes.float32, 0, 1), ((128, SBUF // 4 - half + 1), dtypes.float32, 1, 2)
    )
    with pytest.raises(OutOfMemoryError, match=f"needs {SBUF + 4} "):
        allocate(over, TRN2)


def _evicted_late(a):
    """Nine PSUM banks are filled before the first is emptied: two loops that could be one."""
    out = nl.ndarray((128, 9), dtype=nl.float32, buffer=nl.shared_hbm)
    got = nl.ndarray((128, 9), dtype=nl.float32, buffer=nl.sbuf)
    weights = nl.load(a)
    banks = []
    for _ in range(9):
        bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=bank[:, 0:128], stationary=weights, moving=weights)
        banks.append(bank)
    for n in range(len(banks)):
        bank = banks[n]
        nisa.tensor_copy(dst=got[:, n : n + 1], src=bank[:, n : n + 1])
    nl.store(out, got)
    return out


def test_what_a_compiler_may_reorder_or_spill_runs_if_asked_for() -> None:
    a = np.random.default_rng(3).standard_normal((128, 128)).astype(np.float32)
    product = a.astype(np.float64).T @ a.astype(np.float64)
    message = r"PSUM .* needs 18432 .*(?s:.*)capacity=spill"
    with (
        nki.World(host="inprocess", check=["default"]) as world,
        pytest.raises(OutOfMemoryError, match=message),
    ):
        world.run(_evicted_late, a)
    with nki.World(host="inprocess", check=["spill", "strict"]) as world:
        assert world.compile(_evicted_late, a).programs[0].facts["peak_psum"] == 18432
        got = world.run(_evicted_late, a)
    np.testing.assert_allclose(got[0], product[:, :9], rtol=1e-5, atol=1e-4)


def test_operands_of_one_instruction_are_not_spilled() -> None:
    def kernel(a):
        out = nl.ndarray((128, 30000), dtype=nl.float32, buffer=nl.shared_hbm)
        x = nl.ndarray((128, 30000), dtype=nl.float32, buffer=nl.sbuf, name="x")
        y = nl.ndarray((128, 30000), dtype=nl.float32, buffer=nl.sbuf, name="y")
        nisa.memset(dst=x, value=1)
        nisa.tensor_copy(dst=y, src=x)
        nisa.dma_copy(dst=out, src=y)
        return out

    with (
        nki.World(host="inprocess", check="spill") as world,
        pytest.raises(OutOfMemoryError, match=r"one instruction need 240000.*can't") as caught,
    ):
        world.compile(kernel, np.zeros((4, 4), np.float32))
    assert caught.value.instruction == "nisa.tensor_copy"
    assert caught.value.location == line_of(kernel, "tensor_copy")


def test_psum_overflow_is_reported_as_psum() -> None:
    tiles = [((128, 512), dtypes.float32, n, 9) for n in range(9)]
    allocate(_program(*tiles[:8], region=MemoryRegion.psum), TRN2)
    with pytest.raises(OutOfMemoryError, match=r"PSUM has 16384 .* needs 18432") as caught:
        allocate(_program(*tiles, region=MemoryRegion.psum), TRN2)
    assert caught.value.location == "k.py:9"


def test_narrow_tensors_share_a_byte_range_on_different_partitions() -> None:
    wide = SBUF // 4
    program = _program(*[((32, wide), dtypes.float32, 0, 5)] * 4)
    allocate(program, TRN2)
    assert sorted(s.address or (-1, -1) for s in program.storages) == [
        (0, 0),
        (32, 0),
        (64, 0),
        (96, 0),
    ]
    with pytest.raises(OutOfMemoryError):
        allocate(_program(*[((33, wide), dtypes.float32, 0, 5)] * 3), TRN2)


def test_fragmentation_is_noted_and_not_refused() -> None:
    third = SBUF // 12
    # The middle survives; what is left on either side fits the need only in two pieces.
    program = _program(
        ((128, third), dtypes.float32, 0, 0),
        ((128, third), dtypes.float32, 0, 9),
        ((128, third), dtypes.float32, 0, 0),
        ((128, 2 * third), dtypes.float32, 1, 9),
    )
    allocate(program, TRN2)
    assert program.facts["unplaced"] == [3] and program.storages[3].address is None


def test_given_addresses_are_kept_and_avoided() -> None:
    program = _program(
        ((128, 256), dtypes.float32, 0, 9, (0, 0)),
        ((64, 256), dtypes.float32, 0, 9, (64, 2048)),
        ((128, 256), dtypes.float32, 0, 9),
        ((64, 256), dtypes.float32, 0, 9),
    )
    allocate(program, TRN2)
    placed, other, whole, half = program.storages
    assert placed.address == (0, 0) and other.address == (64, 2048)
    assert whole.address == (0, 1024) and half.address == (0, 2048)


def test_a_given_address_may_cut_across_quadrants() -> None:
    program = _program(
        ((32, 256), dtypes.float32, 0, 9, (16, 0)),
        ((32, 256), dtypes.float32, 0, 9),
        ((32, 256), dtypes.float32, 0, 9),
        ((32, 256), dtypes.float32, 0, 9),
    )
    allocate(program, TRN2)
    assert [s.address for s in program.storages[1:]] == [(64, 0), (96, 0), (0, 1024)]


def test_tensors_the_kernel_laid_over_each_other_count_once() -> None:
    tiles = [((128, SBUF // 4), dtypes.float32, 0, 9, (0, 0))] * 3
    program = _program(*tiles)
    allocate(program, TRN2)
    assert program.facts["peak_sbuf"] == SBUF
    with pytest.raises(OutOfMemoryError):
        allocate(_program(*tiles, ((1, 1), dtypes.float32, 4, 5)), TRN2)


def test_what_the_kernel_laid_over_each_other_dies_in_parts() -> None:
    """Bytes count until the last tensor that lies over them is dead."""
    program = _program(
        ((128, 128), dtypes.float32, 0, 2, (0, 0)),
        ((128, 128), dtypes.float32, 1, 4, (0, 256)),
        ((128, 160), dtypes.float32, 3, 6, (0, 1024)),
        ((128, 240), dtypes.float32, 5, 6, (0, 0)),
    )
    allocate(program, TRN2)
    assert program.facts["peak_sbuf"] == 640 + 960  # 512, 512 + 256, 512 + 640


@pytest.mark.parametrize(
    ("address", "shape", "message"),
    [
        ((0, 2), (128, 8), "starts at byte 2; must be a multiple of 4"),
        ((0, SBUF - 28), (128, 8), f"allowed: 0 to {SBUF - 1}"),
        ((0, -4), (128, 8), "covers bytes -4 to 27"),
        ((96, 0), (33, 8), r"covers partitions 96 to 128; allowed: 0 to 127"),
    ],
)
def test_impossible_sbuf_addresses(address: tuple[int, int], shape: tuple, message: str) -> None:
    with pytest.raises(NkiValidationError, match=message) as caught:
        allocate(_program((shape, dtypes.float32, 0, 1, address)), TRN2)
    assert caught.value.location == "k.py:1"


def test_possible_sbuf_addresses_at_the_limits() -> None:
    allocate(_program(((128, 8), dtypes.float32, 0, 1, (0, SBUF - 32))), TRN2)
    allocate(_program(((32, 8), dtypes.float32, 0, 1, (96, 4))), TRN2)


def test_psum_tensors_stay_in_their_bank_unless_larger() -> None:
    def psum(address: tuple[int, int], free: int, dtype: dtypes.DType = dtypes.float32) -> None:
        tile = ((128, free), dtype, 0, 1, address)
        allocate(_program(tile, region=MemoryRegion.psum), TRN2)

    psum((0, 14336), 512)
    psum((0, 1024), 256)
    psum((0, 2048), 1024)
    with pytest.raises(NkiValidationError, match=r"bytes 1028 to 2051 .* crosses a bank boundary"):
        psum((0, 1028), 256)
    with pytest.raises(NkiValidationError, match=r"bytes 1 to 2048 .* crosses a bank boundary"):
        psum((0, 1), 2048, dtypes.int8)
    with pytest.raises(NkiValidationError, match="allowed: 0 to 16383"):
        psum((0, 14336), 513)


def test_hbm_capacity_counts_private_and_shared() -> None:
    stack = TRN2.hbm_stack_bytes
    rows = stack // (3 * 4096)
    tile = ((rows, 1024), dtypes.float32)
    region = MemoryRegion.private_hbm
    one_after_the_other = _program(*[(*tile, n, n) for n in range(5)], region=region)
    allocate(one_after_the_other, TRN2)
    assert one_after_the_other.facts["peak_hbm"] == rows * 4096
    with pytest.raises(OutOfMemoryError, match=f"HBM stack has {stack} bytes") as caught:
        allocate(_program(*[(*tile, 0, 9) for n in range(4)], region=region), TRN2)
    assert caught.value.location == "k.py:4"


def test_hbm_capacity_counts_every_core() -> None:
    rows = TRN2.hbm_stack_bytes // (3 * 4096)
    tile = ((rows, 1024), dtypes.float32, 0, 9)
    programs = [_program(tile, region=MemoryRegion.private_hbm) for _ in range(4)]
    for program in programs:
        allocate(program, TRN2)
    check_hbm(programs[:3], TRN2)
    with pytest.raises(OutOfMemoryError, match=r"private tensors of 4 core"):
        check_hbm(programs, TRN2)


@pytest.mark.parametrize("role", ["input", "shared", "constant"])
def test_hbm_capacity_counts_what_cores_share_once(role: str) -> None:
    stack = TRN2.hbm_stack_bytes
    programs = [
        _program(((stack // 8192, 1024), dtypes.float32, 0, 9), region=MemoryRegion.shared_hbm)
        for _ in range(2)
    ]
    for program in programs:
        program.storages[0].role = role
        program.facts["peak_hbm"] = stack // 4
    check_hbm(programs, TRN2)
    programs[1].facts["peak_hbm"] += 1
    with pytest.raises(OutOfMemoryError, match=f"needs {stack + 1}: {stack // 2} for inputs and"):
        check_hbm(programs, TRN2)


def test_rivals_are_those_alive_together_on_the_same_bytes() -> None:
    program = _program(
        ((128, 100), dtypes.float32, 0, 5, (0, 0)),
        ((64, 100), dtypes.float32, 5, 9, (64, 396)),
        ((64, 100), dtypes.float32, 5, 9, (0, 400)),
        ((128, 100), dtypes.float32, 6, 7, (0, 0)),
    )
    rivals = find_rivals(program.storages)
    assert {n: [r.storage.number for r in found] for n, found in rivals.items()} == {
        0: [1],
        1: [0, 3],
        3: [1],
    }
