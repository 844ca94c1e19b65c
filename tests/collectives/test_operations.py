"""Every collective against NumPy: ranks, groups, cores, memories, dtypes."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist.collectives as ncc
import nki_dist.language as nl
from tests.collectives import kernels as K
from tests.collectives.worlds import PerRank, mates, normal, run, same_on_cores, whole_numbers

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 16)
STRIDED = [[0, 2], [1, 3]]
BACKWARDS = [[5, 0, 3], [4, 2, 1]]
REFERENCE = {"add": np.sum, "minimum": np.min, "maximum": np.max}


def everybody(ranks):
    return [list(range(ranks))]


def split(array, parts, place, dim=0):
    return np.split(array, parts, axis=dim)[place]


CASES = [(r, everybody(r)) for r in RANKS]
CASES += [(4, STRIDED), (6, BACKWARDS), (8, [[0, 4], [1, 5], [2, 6], [3, 7]])]
CASES += [(32, [list(range(1, 32, 2)), list(range(0, 32, 2))])]
CASES += [pytest.param(32, everybody(32), marks=pytest.mark.slow)]


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize(("ranks", "groups"), CASES)
def test_all_reduce_and_reduce_scatter(ranks, groups, lnc, where):
    n = len(groups[0])
    xs = whole_numbers(ranks, ranks, (2 * n, 7), np.float32)
    rg = ncc.ReplicaGroup(groups)
    outs = run(K.all_reduce, ranks, xs, rg, nl.add, where, lnc=lnc)
    scattered = run(K.reduce_scatter, ranks, xs, rg, nl.maximum, n, where, lnc=lnc)
    for rank in range(ranks):
        group, place = mates(groups, rank)
        theirs = np.stack([xs[g] for g in group]).astype(np.float64)
        same_on_cores(outs[rank], theirs.sum(0))
        same_on_cores(scattered[rank], split(theirs.max(0), n, place))


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize(("ranks", "groups"), CASES)
def test_all_gather_and_all_to_all(ranks, groups, lnc, where):
    n = len(groups[0])
    xs, few = (normal(ranks, ranks, (rows, 5), np.float16) for rows in (2 * n, 3))
    rg = ncc.ReplicaGroup(groups)
    gathered = run(K.all_gather, ranks, few, rg, n, where, lnc=lnc)
    swapped = run(K.all_to_all, ranks, xs, rg, where, lnc=lnc)
    for rank in range(ranks):
        group, place = mates(groups, rank)
        same_on_cores(gathered[rank], np.concatenate([few[g] for g in group]))
        same_on_cores(swapped[rank], np.concatenate([split(xs[g], n, place) for g in group]))


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("op", ["add", "minimum", "maximum"])
def test_dimension_one_and_operators(op, where):
    groups, n = BACKWARDS, 3
    xs = whole_numbers(1, 6, (5, 6), np.float32)
    rg, token = ncc.ReplicaGroup(groups), getattr(nl, op)
    gathered = run(K.all_gather, 6, xs, rg, n, where, 1, lnc=2)
    scattered = run(K.reduce_scatter, 6, xs, rg, token, n, where, 1)
    swapped = run(K.all_to_all, 6, xs, rg, where, 1)
    reduced = run(K.all_reduce, 6, xs, rg, token, where, True)
    for rank in range(6):
        group, place = mates(groups, rank)
        theirs = [xs[g] for g in group]
        total = REFERENCE[op](np.stack(theirs), axis=0)
        same_on_cores(gathered[rank], np.concatenate(theirs, 1))
        same_on_cores(scattered[rank], split(total, n, place, 1))
        blocks = [split(x, n, place, 1) for x in theirs]
        same_on_cores(swapped[rank], np.concatenate(blocks, 1))
        same_on_cores(reduced[rank], total)


@pytest.mark.parametrize(
    "dtype",
    [
        np.float32,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3,
        ml_dtypes.float8_e5m2,
        np.int8,
        np.int16,
        np.int32,
        np.uint8,
        np.uint16,
        np.uint32,
    ],
)
def test_every_dtype(dtype):
    xs = whole_numbers(2, 3, (3, 4), dtype)
    rg = ncc.ReplicaGroup(everybody(3))
    out = run(K.all_reduce, 3, xs, rg, nl.add)
    wide = np.stack([x.astype(np.float32) for x in xs])
    got = run(K.all_gather, 3, xs, rg, 3)
    low = run(K.reduce_scatter, 3, xs, rg, nl.minimum, 3)
    for rank in range(3):
        same_on_cores(out[rank], wide.sum(0).astype(dtype))
        same_on_cores(got[rank], np.concatenate(xs))
        same_on_cores(low[rank], wide.min(0)[rank : rank + 1].astype(dtype))


def test_integer_sums_are_exact_beyond_float32_and_wrap():
    xs = PerRank(np.array([[2**24 + 1, 2**31 - 1, -(2**31)]], np.int32) for _ in range(3))
    out = run(K.all_reduce, 3, xs, ncc.ReplicaGroup([[0, 1, 2]]), nl.add)
    want = (xs[0].astype(np.int64) * 3 + 2**31) % 2**32 - 2**31
    np.testing.assert_array_equal(out[1][0], want)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, np.float16])
@pytest.mark.parametrize("ranks", [3, 8])
def test_narrow_sums_are_rounded_once(dtype, ranks):
    """In the documented order (mesh: that of the group), float32 sums and one rounding."""
    xs = normal(5, ranks, (ranks, 33), dtype)
    rg = ncc.ReplicaGroup(everybody(ranks))
    total = xs[0].astype(np.float32)
    for x in xs[1:]:
        total = total + x.astype(np.float32)
    out = run(K.all_reduce, ranks, xs, rg, nl.add)
    scattered = run(K.reduce_scatter, ranks, xs, rg, nl.add, ranks)
    for rank in range(ranks):
        same_on_cores(out[rank], total.astype(dtype))
        same_on_cores(scattered[rank], total[rank : rank + 1].astype(dtype))


@pytest.mark.parametrize("lnc", [1, 2])
def test_coalesced_lists(lnc):
    xs, ys = whole_numbers(3, 4, (4, 3), np.float32), whole_numbers(4, 4, (8, 2, 3), np.int32)
    outs = run(K.coalesced, 4, xs, ys, ncc.ReplicaGroup(STRIDED), 2, lnc=lnc)
    for rank in range(4):
        group, place = mates(STRIDED, rank)
        for n, data in enumerate((xs, ys)):
            theirs = np.stack([data[g] for g in group])
            same_on_cores(outs[rank][n], theirs.sum(0))
            same_on_cores(outs[rank][2 + n], np.concatenate(list(theirs)))
            same_on_cores(outs[rank][4 + n], split(theirs.max(0), 2, place))
            blocks = np.concatenate([split(x, 2, place) for x in theirs])
            same_on_cores(outs[rank][6 + n], blocks)
