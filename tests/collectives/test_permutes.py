"""Permutations and rings against NumPy, and whom a collective's tensors belong to."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist.collectives as ncc
import nki_dist.language as nl
from tests.collectives import kernels as K
from tests.collectives.worlds import mates, normal, run, same_on_cores, whole_numbers

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

BACKWARDS = [[5, 0, 3], [4, 2, 1]]
REFERENCE = {"add": np.sum, "maximum": np.max}


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)],
        [(3, 1), (1, 3)],
        [(0, 4), (4, 2)],
        [(2, 2), (0, 1)],
    ],
)
def test_permute(pairs, lnc, where):
    xs = normal(6, 5, (3, 5), np.float32)
    outs = run(K.permute, 5, xs, pairs, where, lnc=lnc)
    sources = {target: source for source, target in pairs}
    for rank in range(5):
        kept = np.full((3, 5), 77, np.float32)
        same_on_cores(outs[rank], xs[sources[rank]] if rank in sources else kept)


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize(("ranks", "groups"), [(5, [list(range(5))]), (6, BACKWARDS), (1, [[0]])])
def test_implicit_ring(ranks, groups, lnc, where):
    size = len(groups[0])
    xs = normal(7, ranks, (4, 3), ml_dtypes.bfloat16)
    for channels in (1, 2):
        outs = run(K.ring, ranks, xs, ncc.ReplicaGroup(groups), size, channels, where, lnc=lnc)
        for rank in range(ranks):
            for channel in outs[rank]:
                for core in channel:
                    for other in mates(groups, rank)[0]:
                        same_on_cores(core[other][None], xs[other])


def test_implicit_ring_in_a_run_time_loop():
    xs = normal(8, 4, (3, 2), np.float32)
    outs = run(K.ring_in_dynamic_loop, 4, xs, ncc.ReplicaGroup([[0, 2, 1, 3]]), 4)
    for out in outs:
        np.testing.assert_array_equal(out, np.stack(xs))


@pytest.mark.parametrize("where", ["hbm", "sbuf"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_implicit_ring_reduce(dtype, op, where):
    xs, ys = whole_numbers(9, 6, (3, 4), dtype), whole_numbers(10, 6, (3, 4), dtype)
    outs = run(K.ring_reduce, 6, xs, ys, ncc.ReplicaGroup(BACKWARDS), getattr(nl, op), where)
    for rank in range(6):
        group, place = mates(BACKWARDS, rank)
        before = group[place - 1]
        both = np.stack([xs[before].astype(np.float64), ys[before].astype(np.float64)])
        same_on_cores(outs[rank], REFERENCE[op](both, axis=0))


def test_private_hbm_belongs_to_the_core():
    xs = whole_numbers(11, 3, (2, 4), np.float32)
    outs = run(K.private, 3, xs, ncc.ReplicaGroup([[2, 0, 1]]), 3, lnc=2)
    for out in outs:
        for core in (0, 1):
            np.testing.assert_array_equal(
                out[core], np.concatenate([xs[r] + 100 * core for r in (2, 0, 1)])
            )


def test_hbm_collective_waits_for_both_halves_and_releases_both_cores():
    xs = whole_numbers(12, 3, (4, 6), np.float32)
    added = np.repeat([100.0, 200.0], 2)[:, None] * 3
    for check in ("default", "strict"):
        outs = run(K.halves_then_reduce, 3, xs, ncc.ReplicaGroup([[0, 1, 2]]), lnc=2, check=check)
        for out in outs:
            np.testing.assert_array_equal(out, sum(xs) + added)
