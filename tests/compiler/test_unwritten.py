"""Returned tensors that are stored in part or not at all: what compiling says of them."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.missing import where_missing
from nki_dist.compiler.passes import unwritten
from nki_dist.errors import DeadlockError, UninitializedReadError, UnwrittenOutputWarning
from tests.compiler.between import register_of
from tests.compiler.compiling import compiled, line_of
from tests.compiler.uninitialised import INPUT, hbm, refusal


def tail_forgotten(a):
    out = hbm()
    for i in range(48 // 20):
        nisa.dma_copy(dst=out[i * 20 : i * 20 + 20, :], src=a[i * 20 : i * 20 + 20, :])
    return out


def test_a_forgotten_tail_is_a_warning_with_numbers_line_and_rows() -> None:
    (warning,) = compiled(tail_forgotten, INPUT).warnings
    assert type(warning) is UnwrittenOutputWarning
    assert "264 of 1,584 elements of output, out (48x33" in warning.message
    assert "never stored: rows 40 to 47" in warning.message
    assert warning.location == line_of(hbm, "nl.ndarray")
    assert "tail left over" in warning.hint and "policy" not in warning.hint


def test_strict_makes_it_an_error() -> None:
    error = refusal(tail_forgotten, check="strict")
    assert "264 of 1,584 elements" in error.message and "rows 40 to 47" in error.message


def test_nothing_stored_is_an_error() -> None:
    def kernel(a):
        out, other = hbm(), hbm(name="other")
        nisa.dma_copy(dst=out, src=a)
        return {"a": [out, other]}

    error = refusal(kernel)
    assert "1,584 of 1,584 elements of output['a'][1], other (48x33" in error.message
    assert error.location == line_of(hbm, "nl.ndarray")


@pytest.mark.parametrize("policy", ["zero", "nan"])
def test_where_memory_has_contents_it_stays_a_warning(policy: str) -> None:
    (warning,) = compiled(lambda a: hbm(), INPUT, check=f"unwritten={policy}").warnings
    assert "1,584 of 1,584 elements" in warning.message
    assert len(compiled(tail_forgotten, INPUT, check=f"unwritten={policy}").warnings) == 1


@pytest.mark.parametrize("lnc", [1, 2])
def test_what_any_core_stores_is_stored(lnc: int) -> None:
    def kernel(a):
        out = hbm()
        me = nl.program_id(0) if lnc == 2 else 0
        nisa.dma_copy(dst=out[me * 24 : me * 24 + 24, :], src=a[0:24, :])
        return out

    warnings = compiled(kernel, INPUT, lnc=lnc).warnings
    if lnc == 2:
        assert warnings == ()
    else:
        assert "792 of 1,584" in warnings[0].message and "rows 24 to 47" in warnings[0].message


def test_only_what_is_returned_counts() -> None:
    def kernel(a, columns):
        out = hbm()
        nisa.dma_copy(dst=out[:, 0:30], src=a[:, 0:30])
        return out[:, 0:columns]

    assert compiled(lambda a: kernel(a, 30), INPUT).warnings == ()
    (warning,) = compiled(lambda a: kernel(a, 31), INPUT).warnings
    assert "48 of 1,488" in warning.message and "columns 30 of every row" in warning.message


def test_one_storage_returned_twice_is_said_for_each_place() -> None:
    def kernel(a):
        out = hbm()
        nisa.dma_copy(dst=out[0:10], src=a[0:10])
        return out[0:10], out[5:15], out[20:48]

    error = refusal(kernel)
    assert "output[2]" in error.message
    (warning,) = compiled(lambda a: kernel(a)[:2], INPUT).warnings
    assert "output[1]" in warning.message and "rows 5 to 9" in warning.message


def doubtful(kernel, **options) -> bool:
    found = compiled(kernel, INPUT, ((1, 1), np.int32), **options)
    assert {w.code for w in found.warnings} <= {"release-removed"}  # of nl.dynamic_range
    return bool(found.programs[0].facts["doubtful_outputs"])


def test_run_time_decides_about_dynamic_loops() -> None:
    def kernel(a, n, before):
        out, tile = hbm(), nl.load(a)
        if before:
            nisa.dma_copy(dst=out, src=tile)
        for _ in nl.dynamic_range(register_of(n)):
            nisa.dma_copy(dst=out, src=tile)
        return out

    assert doubtful(lambda a, n: kernel(a, n, False))
    assert not doubtful(lambda a, n: kernel(a, n, True))


def test_run_time_decides_about_what_is_too_large_to_follow(monkeypatch) -> None:
    monkeypatch.setattr(unwritten, "LARGEST", 100)
    made = compiled(tail_forgotten, INPUT)
    assert not made.warnings and made.programs[0].facts["doubtful_outputs"]


def test_run_time_decides_about_run_time_places() -> None:
    def kernel(a, n, rows):
        out = hbm()
        for i in range(2):
            nisa.dma_copy(dst=out[24 * i : 24 * i + rows], src=a[24 * i : 24 * i + rows])
        nisa.dma_copy(
            dst=out.ap([[33, 1], [1, 33]], scalar_offset=nl.load(n), indirect_dim=0), src=a[0:1]
        )
        return out

    assert doubtful(lambda a, n: kernel(a, n, 23))
    assert not doubtful(lambda a, n: kernel(a, n, 24))


def test_strict_doesnt_wait_for_the_run_where_some_elements_have_no_store() -> None:
    def kernel(a, n):
        out = hbm()
        for _ in nl.dynamic_range(register_of(n)):
            nisa.dma_copy(dst=out[0:40], src=a[0:40])
        return out

    assert doubtful(kernel)
    error = refusal(kernel, INPUT, ((1, 1), np.int32), check="strict")
    assert "264 of 1,584" in error.message and "rows 40 to 47" in error.message


def test_a_saved_program_keeps_its_warnings(tmp_path) -> None:
    before = compiled(tail_forgotten, INPUT)
    before.save(tmp_path / "k")
    after = type(before).load(tmp_path / "k")
    assert [str(w) for w in after.warnings] == [str(w) for w in before.warnings] != []


@pytest.mark.parametrize(
    ("shape", "places", "words"),
    [
        ((9,), np.s_[3:5], "elements 3 to 4"),
        ((9, 4), np.s_[8], "rows 8"),
        ((9, 4), np.s_[::3], "rows 0, 3 and 6"),
        ((9, 4), np.s_[[0, 1, 4, 5, 8]], "rows 0 to 1, 4 to 5 and 8"),
        ((30, 4), np.s_[::2], "rows 0, 2, 4, 6 and 11 more runs up to 28"),
        ((9, 4), np.s_[:, 1:3], "columns 1 to 2 of every row"),
        ((9, 4), np.s_[2:4, 3:], "columns 3 of rows 2 to 3"),
        ((9, 4, 5), np.s_[2], "rows 2"),
        ((9, 4, 5), np.s_[2:4, 1, 3], "in rows 2 to 3, the first at [2, 1, 3]"),
        ((3, 3), (np.arange(3), np.arange(3)), "in rows 0 to 2, the first at [0, 0]"),
    ],
)
def test_words_for_places(shape, places, words) -> None:
    missing = np.zeros(shape, bool)
    missing[places] = True
    assert where_missing(missing) == words


def waits_and_stores_nothing(a):
    out = hbm()
    nisa.core_barrier(data=out, cores=(0, 1))
    return out


def deadlocks_and_stores_nothing(a):
    out = hbm()
    if nl.program_id(0) == 0:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


@pytest.mark.parametrize("launch", ["run", "dry_run"])
def test_what_cores_wait_for_comes_first(launch) -> None:
    """That nothing is stored may follow from it."""
    x = np.ones(*INPUT)
    with nki.World(lnc=2, host="inprocess") as world:
        with pytest.raises(UninitializedReadError, match="1,584 of 1,584 elements"):
            getattr(world, launch)(waits_and_stores_nothing, x)
        with pytest.raises(DeadlockError, match="core_barrier"):
            getattr(world, launch)(deadlocks_and_stores_nothing, x)
    assert compiled(waits_and_stores_nothing, INPUT, lnc=2, check="unwritten=nan").unstored == ()
