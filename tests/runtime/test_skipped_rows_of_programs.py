"""Rows that DMA skips, in programs: oversized patterns, files, dry runs, two cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.program import instructions
from nki_dist.program.walk import operands
from tests.compiler.compiling import compiled
from tests.isa.helpers import numbers

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

SKIP = nisa.oob_mode.skip


def world(**options: Any) -> nki.World:
    return nki.World(ranks=1, host="inprocess", **{"lnc": 1, **options})


def at(index: int) -> np.ndarray:
    return np.array([[index]], np.int32)


@nki.jit
def tail(x, start, mode):
    """128 rows of a tensor that has fewer."""
    tile, out = nl.ndarray((128, 5), dtype=x.dtype, buffer=nl.sbuf), None
    nisa.memset(dst=tile, value=7)
    rows = x.ap([[5, 128], [1, 5]], scalar_offset=nl.load(start))
    nisa.dma_copy(dst=tile, src=rows, oob_mode=mode)
    out = nl.ndarray((128, 5), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def wanted(x: np.ndarray, start: int) -> np.ndarray:
    want = np.full((128, 5), 7, x.dtype)
    for k in range(128):
        if 0 <= start + k < len(x):
            want[k] = x[start + k]
    return want


@pytest.mark.parametrize("start", [0, 60, 99, 100, -1, -127, -128, 2**31 - 1])
def test_a_tile_larger_than_the_tensor(start: int) -> None:
    x = numbers(1, (100, 5))
    with world() as w:
        assert np.array_equal(w.run(tail, x, at(start), SKIP)[0], wanted(x, start))
        w.dry_run(tail, x, at(start), SKIP, profile=True)
        for run in (w.run, w.dry_run):
            with pytest.raises(errors.OutOfBoundsError) as caught:
                run(tail, x, at(start), nisa.oob_mode.error)
            first = 100 - start if 0 <= start < 100 else 0
            assert f"row {first} of the transfer's 128 would" in caught.value.message
            assert caught.value.location.startswith(__file__)


def test_files_hold_what_bounds_an_address() -> None:
    """Ray's actors run what is decoded; tests/hosts has a kernel for that."""

    def kernel(x, start):
        index = nl.load(start)
        tile = nl.ndarray((4, 3, 5), dtype=x.dtype, buffer=nl.sbuf)
        for rows in (
            x.ap([[5, 4], [15, 3], [1, 5]], 5, scalar_offset=index),
            x.ap([[5, 4], [99, 3], [1, 5]], -9, scalar_offset=index),
            x[:, nl.ds(nisa.register_alloc(index), 3), :],
        ):
            nisa.dma_copy(dst=tile, src=rows, oob_mode=SKIP)
        return x

    program = compiled(kernel, ((4, 6, 5), np.float32), ((1, 1), np.int32)).programs[0]
    bounds = [_bounds(p) for p in (program, decode(encode(program)))]
    assert bounds[0] == bounds[1]
    assert [within for *_, within in bounds[0]] == [None, None, (0, 6, 30)]


def _bounds(program: Any) -> list[tuple[Any, ...]]:
    moved = [a for i in instructions(program.body) for _, a in operands(i.args) if a.dynamic]
    found = [(a.offset, a.dynamic) for a in moved]
    return [(n, d.kind, d.stride, d.limit, d.dim, d.within) for n, d in found]


@nki.jit
def rounds_from_a_skipping_copy(x, start):
    """A loop's rounds are what a copy that skips leaves in a tile."""
    counts = nl.ndarray((1, 6), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=counts, value=2)
    rows = x.ap([[6, 1], [1, 6]], scalar_offset=nl.load(start), indirect_dim=1)
    nisa.dma_copy(dst=counts.reshape((1, 6, 1)), src=rows.reshape((1, 6, 1)), oob_mode=SKIP)
    rounds = nisa.register_alloc(counts[0:1, 3:4])
    total = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0)
    for _ in nl.dynamic_range(rounds):
        nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
    out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out


@pytest.mark.parametrize(("start", "rounds"), [(0, 5), (2, 7), (3, 2), (-3, 2), (-4, 2)])
def test_dry_runs_skip_the_same_rows(start: int, rounds: int) -> None:
    x = np.array([[2, 3, 4, 5, 6, 7]], np.int32)
    with world() as w:
        full = w.run(rounds_from_a_skipping_copy, x, at(start), profile=True)
        dry = w.dry_run(rounds_from_a_skipping_copy, x, at(start), profile=True)
    moved = 3 + start
    assert rounds == (x[0, moved] if 0 <= moved < 6 else 2)
    assert full.outputs[0] == rounds
    assert dry.profile.total_us == full.profile.total_us


@nki.jit
def halves(x, start):
    """Core 0 stores rows 0 to 3 and core 1 six rows from `start` on."""
    out = nl.ndarray((8, 5), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, index = nl.load(x), nl.load(start)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:4], src=tile[0:4])
    else:
        rows = out.ap([[5, 6], [1, 5]], scalar_offset=index)
        nisa.dma_copy(dst=rows, src=tile[4:10], oob_mode=SKIP)
    return out


@nki.jit
def halves_by_vector(x, start):
    """The same by a vector offset of three rows for each of two indices."""
    out = nl.ndarray((8, 5), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, index = nl.load(x), nl.load(start)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:4], src=tile[0:4])
    else:
        scratch = nl.ndarray((6, 5), dtype=x.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=scratch, src=tile[4:10])
        rows = out.ap([[5, 2], [5, 3], [1, 5]], vector_offset=index)
        nisa.dma_copy(dst=rows, src=scratch.reshape((2, 3, 5)), oob_mode=SKIP)
    return out


@nki.jit
def in_two_parts(x, start, first):
    """Core 1 stores halves of rows; moved back by one element, what is inside is no box."""
    out = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, index = nl.load(x), nl.load(start)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[first : first + 1], src=tile[7:8])
    else:
        rows = out.ap([[6, 4], [3, 2], [1, 3]], scalar_offset=index, indirect_dim=1)
        nisa.dma_copy(dst=rows, src=tile[0:4].reshape((4, 2, 3)), oob_mode=SKIP)
    return out


def test_every_part_of_a_transfer_is_watched() -> None:
    x = numbers(1, (8, 6))
    with world(lnc=2) as w:
        with pytest.warns(errors.UnwrittenOutputWarning, match="21 of 48 elements"):
            (out,) = w.run(in_two_parts, x, at(-1), 4)
        assert np.array_equal(out.reshape(-1)[2:23], x.reshape(-1)[3:24])
        assert np.array_equal(out[4], x[7])
        with pytest.raises(errors.RaceError, match="store by core"):
            w.run(in_two_parts, x, at(-1), 3)


@pytest.mark.parametrize("kernel", [halves, halves_by_vector])
def test_rows_that_are_skipped_race_with_nothing(kernel: Any) -> None:
    x = numbers(1, (10, 5))
    starts = at if kernel is halves else lambda n: np.array([[n], [n + 3]], np.int32)
    with world(lnc=2) as w:
        (out,) = w.run(kernel, x, starts(4))  # rows 4 to 9 of 8
        assert np.array_equal(out, x[:8])
        with pytest.raises(errors.RaceError, match="store by core"):
            w.run(kernel, x, starts(3))
