"""Arguments that all ranks share are bound once, and are every rank's own in its kernel."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from nki_dist.launcher import binding
from nki_dist.launcher.deferred import bind_ranks

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

RANKS = 5
XS = [np.full((4, 3), r, np.float32) for r in range(RANKS)]
W = np.ones((4, 3), np.float32)


def kernel(x, group, weights, *, names): ...


@pytest.mark.parametrize("defer", [False, True])
def test_what_holds_no_arrays_is_gone_through_once(defer, monkeypatch):
    walked = []
    flatten = binding.flatten
    monkeypatch.setattr(
        binding, "flatten", lambda v, *rest, **named: walked.append(v) or flatten(v, *rest, **named)
    )
    group, weights, names = ncc.ReplicaGroup([list(range(RANKS))]), [W, 3], {"a": [1, 2]}
    given = nki.per_rank(XS), group, weights
    bound = bind_ranks(kernel, given, {"names": names}, RANKS, defer)
    assert [sum(v is given for v in walked) for given in (group, weights, names)] == [1, RANKS, 1]
    for rank, mine in enumerate(bound):
        assert mine.arrays[0] is XS[rank] and mine.arrays[1] is W
        assert mine.args == bound[0].args and mine.kwargs == {"names": {"a": [1, 2]}}
        assert mine.kwargs["names"] is not names


def test_each_rank_s_kernel_has_its_own_copy():
    def filled(x, seen):
        seen.append(len(seen))
        assert seen == [7, 1]
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    given = [7]
    for host in ("debug", "inprocess"):
        with nki.World(3, host=host) as world:
            for x, out in zip(XS, world.run(filled, nki.per_rank(XS[:3]), given)):
                np.testing.assert_array_equal(out, x)
    assert given == [7]


def test_values_that_differ_between_ranks_are_still_refused():
    with (
        nki.World(2, host="inprocess") as world,
        pytest.raises(LaunchError, match="rank 1 has other compile-time arguments"),
    ):
        world.run(lambda x, n: x, nki.per_rank(XS[:2]), nki.per_rank([[1, 2], [1, 3]]))
