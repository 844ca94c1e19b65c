"""What a run tells of returned tensors: loops that may not run, rows chosen at run time; and
policies, on both hosts."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import RaceWarning, UninitializedReadError, UnwrittenOutputWarning

X = np.random.default_rng(4).standard_normal((12, 10)).astype(np.float32)


@pytest.fixture(params=["inprocess", "ray"])
def host(request):
    return request.param


@nki.jit
def first_rows(x, count):
    """Stores as many rows as `count` says, one after the other."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
    number, row = nisa.register_alloc(), nl.zeros((1, 1), nl.int32)
    nisa.register_load(number, nl.load(count))
    for _ in nl.dynamic_range(number):
        line = nl.ndarray((1, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=line, src=x[0:1])
        place = out.ap([[x.shape[1], 1], [1, x.shape[1]]], scalar_offset=row, indirect_dim=0)
        nisa.dma_copy(dst=place, src=line)
        nisa.tensor_scalar(dst=row, data=row, op0=nl.add, operand0=1)
    return out


def counts(*numbers):
    return nki.per_rank([np.full((1, 1), n, np.int32) for n in numbers])


def said(call):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = call()
    found = [w.message for w in seen if issubclass(w.category, UnwrittenOutputWarning)]
    return result, [warning.message for warning in found]


def test_rows_that_no_iteration_stored(host):
    with nki.World(host=host) as world:
        (out,), texts = said(lambda: world.run(first_rows, X, counts(9)))
        assert np.array_equal(out[:9], np.repeat(X[:1], 9, 0))
        (text,) = texts
        assert "30 of 120 elements of output, out" in text and "never stored: rows 9 to 11" in text
        assert said(lambda: world.run(first_rows, X, counts(12)))[1] == []
        _, (text,) = said(lambda: world.run(first_rows, X, counts(0)))
        assert "none of the 120 elements" in text  # no error: it may well be right for this data


def test_strict(host):
    with nki.World(host=host, check="strict") as world:
        with pytest.raises(UninitializedReadError, match="rows 9 to 11"):
            world.run(first_rows, X, counts(9))
        assert world.run(first_rows, X, counts(12))[0].shape == (12, 10)


def test_zero_leaves_nothing_to_tell():
    with nki.World(host="inprocess", check="unwritten=zero") as world:
        (out,), texts = said(lambda: world.run(first_rows, X, counts(9)))
    assert not out[9:].any() and texts == []


def test_ranks_are_named(host):
    with nki.World(ranks=3, host=host) as world:
        _, texts = said(lambda: world.run(first_rows, X, counts(12, 11, 10)))
    (text,) = texts
    assert "rows 11 on rank 1 (and similarly on 1 more ranks)" in text


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.int32, np.uint16, np.int8, ml_dtypes.float8_e5m2]
)
def test_other_types(dtype):
    x = (X * 4).astype(dtype)
    with nki.World(host="inprocess") as world:
        _, texts = said(lambda: world.run(first_rows, x, counts(7)))
        assert "50 of 120 elements" in texts[0] and "rows 7 to 11" in texts[0]
        assert said(lambda: world.run(first_rows, x, counts(12)))[1] == []


def test_bytes_that_happen_to_look_unwritten_are_no_alarm():
    """Every byte there is, in rows that aren't all the same."""
    x = np.arange(12 * 64).astype(np.uint8).reshape(12, 64)
    with nki.World(host="inprocess") as world:
        assert said(lambda: world.run(first_rows, x, counts(12)))[1] == []


def test_a_result_of_nan_is_no_alarm():
    with nki.World(host="inprocess") as world:
        for dtype in (np.float32, ml_dtypes.bfloat16):
            x = np.full((12, 10), np.nan, dtype)
            assert said(lambda x=x: world.run(first_rows, x, counts(12)))[1] == []


def test_in_float32_without_precise_types(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    x = X.astype(ml_dtypes.bfloat16)
    with nki.World(host="inprocess") as world:
        _, texts = said(lambda: world.run(first_rows, x, counts(11)))
    assert "10 of 120 elements" in texts[0]


def test_a_warning_is_shown_once_for_each_line():
    with nki.World(host="inprocess") as world, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            world.run(first_rows, X, counts(9))
    assert len(seen) == 1


@nki.jit
def both_ranks(x):
    """Both cores store everything, one of them something else."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(nl.program_id(0)))
    nl.store(out, tile)
    return out


def test_races_that_only_warn(host):
    with (
        nki.World(ranks=2, lnc=2, host=host, check="races=warn") as world,
        pytest.warns(RaceWarning, match="nothing orders") as seen,
    ):
        outs = world.run(both_ranks, nki.per_rank([X, X + 1]))
    assert {w.message.core for w in seen} == {0, "rank 1 core 0"}
    assert all(out.shape == X.shape for out in outs)
