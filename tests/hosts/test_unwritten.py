"""What a run tells of returned tensors: loops that may not run, rows chosen at run time; and
policies, on both hosts."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.dtypes.poison import poison_bits
from nki_dist.errors import RaceWarning, UninitializedReadError, UnwrittenOutputWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

X = np.random.default_rng(4).standard_normal((12, 10)).astype(np.float32)


@pytest.fixture(params=["inprocess", "ray"])
def host(request):
    return request.param


@pytest.fixture(scope="module", params=["inprocess", "ray"])
def world(request):
    with nki.World(host=request.param) as made:
        yield made


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


def test_rows_that_no_iteration_stored(world):
    (out,), texts = said(lambda: world.run(first_rows, X, counts(9)))
    assert np.array_equal(out[:9], np.repeat(X[:1], 9, 0))
    (text,) = texts
    assert "30 of 120 elements of output, out" in text and "nobody wrote: rows 9 to 11" in text
    assert said(lambda: world.run(first_rows, X, counts(12)))[1] == []
    _, (text,) = said(lambda: world.run(first_rows, X, counts(0)))
    assert "120 of 120 elements" in text  # no error: it may well be right for this data


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
    assert "rows 11 on rank 1 (and similarly on rank 2)" in text


@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.int32, np.uint16, np.int8, ml_dtypes.float8_e5m2]
)
def test_other_types(dtype):
    x = (X * 4).astype(dtype)
    with nki.World(host="inprocess") as world:
        _, texts = said(lambda: world.run(first_rows, x, counts(7)))
        assert "50 of 120 elements" in texts[0] and "rows 7 to 11" in texts[0]
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
    assert len([w for w in seen if w.category is nki.errors.UnwrittenOutputWarning]) == 1


# ---- what no pass follows -----------------------------------------------------------------------


@nki.jit
def rows_from(x, start):
    """Loads 8 rows from a row on; those beyond the tensor are skipped and never written."""
    tile = nl.ndarray((8, 10), x.dtype, buffer=nl.sbuf)
    rows = x.ap([[10, 8], [1, 10]], scalar_offset=nl.load(start), indirect_dim=0)
    nisa.dma_copy(dst=tile, src=rows, oob_mode=nisa.oob_mode.skip)
    out = nl.ndarray((8, 10), x.dtype, buffer=nl.shared_hbm, name="out")
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_a_tile_that_was_filled_in_part(world, dtype):
    x = (X * 9).astype(dtype)
    assert said(lambda: world.run(rows_from, x, counts(4)))[1] == []
    _, (text,) = said(lambda: world.run(rows_from, x, counts(7)))
    assert "30 of 80 elements" in text and "nobody wrote: rows 5 to 7" in text


def test_strict_refuses_what_came_from_such_a_tile():
    with (
        nki.World(host="inprocess", check="strict") as world,
        pytest.raises(UninitializedReadError, match="rows 5 to 7"),
    ):
        world.run(rows_from, X, counts(7))


@nki.jit
def halves_of_a_scratch(x, rows):
    """Each core stores `rows` of its 6 rows of a scratch; both return what the other stored."""
    me, out = nl.program_id(0), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
    scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=scratch[me * 6 : me * 6 + rows], src=x[me * 6 : me * 6 + rows])
    nisa.core_barrier(data=scratch, cores=(0, 1))
    other = 6 - me * 6
    nisa.dma_copy(dst=out[other : other + 6], src=scratch[other : other + 6])
    return out


def test_a_scratch_of_both_cores(host):
    with nki.World(lnc=2, host=host) as world:
        assert said(lambda: world.run(halves_of_a_scratch, X, 6))[1] == []
        _, (text,) = said(lambda: world.run(halves_of_a_scratch, X, 5))
    assert "20 of 120 elements" in text and "rows 5 and 11" in text


@nki.jit
def summed_over_ranks(x, rows):
    mine = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="out")
    nisa.dma_copy(dst=mine[0:rows], src=x[0:rows])
    ncc.all_reduce([mine], [out], ncc.ReplicaGroup([[0, 1]]), nl.add)
    return out


def test_a_tail_that_goes_through_a_collective(host):
    with nki.World(ranks=2, host=host) as world:
        assert said(lambda: world.run(summed_over_ranks, X, 12))[1] == []
        _, (text,) = said(lambda: world.run(summed_over_ranks, X, 9))
    assert "30 of 120 elements" in text and "rows 9 to 11 on rank 0" in text


def test_data_that_is_equal_to_the_pattern_is_no_alarm():
    """Also where it comes from an earlier kernel that left rows unwritten."""
    with nki.World(host="inprocess", check="strict") as world:
        for dtype in (np.uint8, np.int16, np.int32, ml_dtypes.float8_e4m3fn, np.float32):
            x = np.empty((12, 10), dtype)
            element = dtypes.of(dtype)
            x.view(element.raw)[...] = poison_bits(element)
            assert said(lambda x=x: world.run(rows_from, x, counts(4)))[1] == []


def test_prints_are_shown_once(capsys):
    @nki.jit
    def prints(x, start):
        nl.device_print("start", nl.load(start))
        return rows_from(x, start)

    with nki.World(host="inprocess") as world:
        _, texts = said(lambda: world.run(prints, X, counts(7)))
    assert len(texts) == 1 and capsys.readouterr().out.count("start") == 1


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
    (warned,) = [w.message for w in seen if isinstance(w.message, RaceWarning)]
    assert warned.core == 0 and "; so on ranks 0, 1" in str(warned)
    assert all(out.shape == X.shape for out in outs)
