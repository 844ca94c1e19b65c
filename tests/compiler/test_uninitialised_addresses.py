"""Unwritten elements as indices and register values, and in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.compiler.compiling import compiled, line_of, named
from tests.compiler.uninitialised import INPUT, hbm, refusal, sbuf, stored


def test_an_unwritten_register_source_is_refused() -> None:
    def kernel(a):
        out, tile = hbm(), sbuf((1, 1), nl.int32, name="count")
        register = nisa.register_alloc(tile)
        nisa.dma_copy(dst=out, src=a)
        for _ in nl.dynamic_range(register):
            nisa.dma_copy(dst=out, src=a)
        return out

    error = refusal(kernel)
    assert "register_load loads them into a register" in str(error) and "count" in str(error)
    assert error.location == line_of(kernel, "register_alloc")


def test_unwritten_rows_of_a_vector_offset_are_refused() -> None:
    def kernel(a, rows):
        out = hbm((16, 33))
        index, tile = sbuf((16, 1), nl.int32, name="index"), sbuf((16, 33))
        nisa.memset(dst=index[0:rows, :], value=3)
        rows_of_a = a.ap(pattern=[[33, 16], [1, 33]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=rows_of_a)
        nisa.dma_copy(dst=out, src=tile)
        return out

    compiled(lambda a: kernel(a, 16), INPUT, check="strict")
    assert "as run-time index" in str(refusal(lambda a: kernel(a, 15)))


def test_so_are_those_of_a_source_among_several() -> None:
    def kernel(a, rows):
        out, tile = hbm((16, 33)), sbuf((16, 33))
        index = sbuf((16, 1), nl.int32, name="index")
        nisa.memset(dst=index[0:rows, :], value=3)
        nisa.dma_copy(dst=tile, src=a[0:16])
        rows_of_a = a.ap(pattern=[[33, 16], [1, 33]], vector_offset=index, indirect_dim=0)
        nisa.dma_compute(tile, [rows_of_a, tile], nl.add)
        nisa.dma_copy(dst=out, src=tile)
        return out

    compiled(lambda a: kernel(a, 16), INPUT, check="strict")
    assert "as run-time index" in str(refusal(lambda a: kernel(a, 15)))
    assert "index" in str(refusal(lambda a: kernel(a, 15), check="strict"))


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("columns", [32, 33])
def test_what_a_loop_surely_stores_counts(rounds: int, columns: int) -> None:
    def kernel(a):
        out, tile = hbm(), sbuf()
        nisa.dma_copy(dst=tile[:, 0:columns], src=a[:, 0:columns])
        for _ in nl.dynamic_range(rounds):
            nisa.dma_copy(dst=out, src=tile)
        return out

    if columns == 33:
        assert compiled(kernel, INPUT).programs[0].facts["poison"] == []
    else:
        assert "elements of output" in str(refusal(kernel))


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_a_round_leaves_behind_reaches_the_next(rounds: int) -> None:
    def body(a, loaded, partly, result):
        for _ in nl.dynamic_range(rounds):
            nisa.tensor_copy(dst=result, src=loaded)
            nisa.tensor_copy(dst=loaded, src=partly)

    stored(body, rounds == 2)


def _loop_kernel(fill_before: bool, static: bool) -> Callable[..., Any]:
    def kernel(a, count):
        out = hbm()
        tile = sbuf(name="tile")
        if fill_before:
            nisa.memset(dst=tile, value=0)
        loaded = sbuf((1, 1), nl.int32)
        nisa.dma_copy(dst=loaded, src=count)
        for _ in nl.dynamic_range(3 if static else nisa.register_alloc(loaded)):
            nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


@pytest.mark.parametrize(
    ("fill_before", "static", "poisoned"),
    [(True, False, False), (False, True, False), (False, False, True)],
)
def test_a_loop_that_may_not_run_counts_as_writing_but_is_poisoned(
    fill_before: bool, static: bool, poisoned: bool
) -> None:
    inputs = (INPUT, ((1, 1), np.int32))
    program = compiled(_loop_kernel(fill_before, static), *inputs).programs[0]
    tile = named(program.storages, "tile")
    assert (tile.number in program.facts["poison"]) is poisoned
    assert program.facts["uninitialised_reads"] == []


@pytest.mark.parametrize(("columns", "refused"), [(33, True), (20, True), (0, False)])
def test_stores_at_run_time_offsets_are_refused_if_surely_wrong(
    columns: int, refused: bool
) -> None:
    """A column missing in every row stays wrong wherever rows go; missing rows may be redone."""

    def kernel(a):
        out = hbm((480, 33))
        tile = sbuf()
        nisa.dma_copy(dst=tile[0:40, :], src=a[0:40, :])
        if columns:
            nisa.dma_copy(dst=tile[40:48, 0:20], src=a[40:48, 0:20])
            garbage = sbuf()
            nisa.tensor_copy(dst=tile[:, 33 - columns :], src=garbage[:, 33 - columns :])
        for r in nl.dynamic_range(0, 432):
            nisa.dma_copy(dst=out[nl.ds(r, 48), :], src=tile)
        return out

    if refused:
        assert "elements of output" in str(refusal(kernel))
    else:
        assert compiled(kernel, INPUT).programs[0].facts["poison"]


@pytest.mark.parametrize("first", [33, 7])
@pytest.mark.parametrize("refused", [True, False])
def test_a_store_by_row_numbers_goes_where_they_say(first: int, refused: bool) -> None:
    """A column that nobody wrote stays wrong in any row; the pattern's first stride is replaced."""

    def kernel(a):
        out, index, tile = hbm((480, 33)), sbuf((16, 1), nl.int32), sbuf((16, 33))
        nisa.memset(dst=index, value=3)
        nisa.dma_copy(dst=tile, src=a[0:16, :])
        garbage, rows = sbuf((16, 1)), 16 if refused else 15
        nisa.tensor_copy(dst=tile[0:rows, 20:21], src=garbage[0:rows, :])
        chosen = out.ap(pattern=[[first, 16], [1, 33]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=chosen, src=tile)
        return out

    if refused:
        assert "elements of output" in str(refusal(kernel))
    else:
        assert compiled(kernel, INPUT).programs[0].facts["poison"]


@pytest.mark.parametrize("repaired", [True, False])
def test_a_clean_store_at_a_run_time_offset_may_have_repaired(repaired: bool) -> None:
    def kernel(a):
        out, tile, other = hbm(), sbuf(), sbuf()
        nisa.dma_copy(dst=tile[:, 0:32], src=a[:, 0:32])
        nisa.tensor_copy(dst=other, src=tile)
        for c in nl.dynamic_range(0, 33):
            nisa.dma_copy(dst=(other if repaired else tile)[:, nl.ds(c, 1)], src=a[:, 0:1])
        nisa.dma_copy(dst=out, src=other)
        return out

    if repaired:
        assert compiled(kernel, INPUT).programs[0].facts["poison"]
    else:
        assert "elements of output" in str(refusal(kernel))


def test_reads_at_run_time_offsets_trust_a_partly_written_tensor() -> None:
    def kernel(a, written):
        out = hbm((480, 33), name="out")
        cache = sbuf((480, 33), name="cache", buffer=nl.private_hbm)
        tile = sbuf()
        if written:
            nisa.dma_copy(dst=cache[0:48, :], src=a)
        for r in nl.dynamic_range(0, 5):
            nisa.dma_copy(dst=tile, src=cache[nl.ds(r, 48), :])
            nisa.dma_copy(dst=out[nl.ds(r, 48), :], src=tile)
        return out

    program = compiled(lambda a: kernel(a, True), INPUT).programs[0]
    assert named(program.storages, "cache").number in program.facts["poison"]
    assert program.facts["uninitialised_reads"] == []
    assert "cache" in str(refusal(lambda a: kernel(a, False)))


def test_storages_of_a_loop_body_are_new_in_every_iteration() -> None:
    def kernel(a):
        out = hbm()
        for _ in nl.dynamic_range(4):
            tile, other = sbuf(), sbuf()
            nisa.tensor_copy(dst=other, src=tile)
            nisa.dma_copy(dst=tile, src=a)
            nisa.dma_copy(dst=out, src=other)
        return out

    refusal(kernel)
