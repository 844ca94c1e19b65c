"""Every documented constraint: what is accepted and what is refused, with the message."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.errors import NkiValidationError
from nki_dist.launcher.session import session
from nki_dist.launcher.world import World

TWO = [[0, 1]]


def hbm(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def sbuf(*shape, dtype=nl.float32):
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    return tile


def launch(body, ranks=2, platform="trn2", check="default"):
    """Trace and run `body()` as a kernel on a world."""

    def kernel(x):
        body()
        return x

    with World(ranks=ranks, host="inprocess", platform=platform, check=check) as world:
        world.run(kernel, np.zeros((1, 1), np.float32))


def reduce(srcs, dsts, op=nl.add, group=TWO, **options):
    return lambda: ncc.all_reduce(srcs(), dsts(), group, op, **options)


def t(*shape, make=hbm, count=1, **options):
    return lambda: [make(*shape, **options) for _ in range(count)]


ACCEPTED = {
    "several in HBM": reduce(t(4, 3, count=2), t(4, 3, count=2)),
    "one in SBUF": reduce(t(4, 3, make=sbuf), t(4, 3, make=sbuf)),
    "another shape, as many elements": reduce(t(4, 3), t(12)),
    "tuples of tensors": reduce(lambda: (hbm(4, 3),), lambda: (hbm(4, 3),)),
    "groups as lists": reduce(t(4, 3), t(4, 3), group=[(0,), (1,)]),
    "operators of NumPy": reduce(t(4, 3), t(4, 3), op=np.maximum),
    "gather along 0": lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 3)], TWO, 0),
    "gather, contiguous blocks": lambda: ncc.all_gather([hbm(2, 3)], [hbm(2, 2, 3)], TWO, 0),
    "gather along 1 in SBUF": lambda: ncc.all_gather([sbuf(2, 3)], [sbuf(2, 6)], TWO, 1),
    "packed types move": lambda: ncc.all_gather(
        [hbm(2, 3, dtype=nl.float8_e4m3fn_x4)], [hbm(4, 3, dtype=nl.float8_e4m3fn_x4)], TWO, 0
    ),
    "two channels": lambda: ncc.collective_permute_implicit(
        [[hbm(2, 3)], [hbm(3)]], [[hbm(2, 3)], [hbm(3)]], TWO, [0, 1]
    ),
}

REFUSED = {
    "op": (reduce(t(4, 3), t(4, 3), op=nl.multiply), r"op=nl.multiply; allowed: add, max"),
    "mixed memories": (reduce(t(4, 3), t(4, 3, make=sbuf)), r"in SBUF and .* in HBM; .* all be"),
    "PSUM": (
        reduce(lambda: [nl.ndarray((4, 3), nl.float32, buffer=nl.psum)], t(4, 3)),
        r"srcs\[0\] is in psum",
    ),
    "several in SBUF": (
        reduce(t(4, 3, make=sbuf, count=2), t(4, 3, make=sbuf, count=2)),
        r"2 tensors in SBUF; several at once",
    ),
    "list lengths": (reduce(t(4, 3, count=2), t(4, 3)), r"srcs 2, dsts 1"),
    "no list": (reduce(lambda: hbm(4, 3), t(4, 3)), r"srcs must be a list"),
    "empty list": (reduce(list, list), r"srcs must be a list of at least one"),
    "sizes": (reduce(t(4, 3), t(4, 4)), r"dsts has shape \(4, 4\), srcs \(4, 3\)"),
    "partitions": (reduce(t(4, 3, make=sbuf), t(3, 4, make=sbuf)), r"partition by partition"),
    "dtypes": (reduce(t(4, 3), t(4, 3, dtype=nl.int32)), r"doesn't convert: got dtypes"),
    "packed": (
        reduce(t(2, 3, dtype=nl.float8_e4m3fn_x4), t(2, 3, dtype=nl.float8_e4m3fn_x4)),
        r"packed dtype",
    ),
    "priority": (reduce(t(4, 3), t(4, 3), priority=1), r"priority needs NeuronCore-v4"),
    "no groups": (reduce(t(4, 3), t(4, 3), group=[]), r"replica_group=\[\]; allowed: a Replica"),
    "empty group": (reduce(t(4, 3), t(4, 3), group=[[0, 1], []]), r"group 1 is \[\]"),
    "overlap": (reduce(t(4, 3), t(4, 3), group=[[0, 1], [1]]), r"rank 1 is in groups 0 and 1"),
    "twice": (reduce(t(4, 3), t(4, 3), group=[[0, 1, 0]]), r"rank 0 is in group 0 twice"),
    "negative": (reduce(t(4, 3), t(4, 3), group=[[0, -1]]), r"names rank -1"),
    "no rank": (reduce(t(4, 3), t(4, 3), group=[[0, 1.5]]), r"names rank 1.5"),
    "gathered shape": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 4)], TWO, 0),
        r"dsts\[0\] has shape \(4, 4\); srcs\[0\] of shape \(2, 3\) and 2 ranks need \(4, 3\)",
    ),
    "scattered shape": (
        lambda: ncc.reduce_scatter([hbm(5, 3)], [hbm(2, 3)], TWO, 0, nl.add),
        r"srcs\[0\] has shape \(5, 3\); dsts\[0\] of shape \(2, 3\) and 2 ranks need \(4, 3\)",
    ),
    "collective_dim": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 3)], TWO, 2),
        r"collective_dim=2; tensors have 2 dimensions",
    ),
    "unequal groups": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(4, 3)], [[0, 1], [2]], 0),
        r"groups of \[2, 1\] ranks",
    ),
    "indivisible": (
        lambda: ncc.all_to_all([hbm(3, 2)], [hbm(3, 2)], TWO, 0),
        r"srcs\[0\] has 3 elements along collective_dim=0; must be a multiple of the 2",
    ),
    "two in permute": (
        lambda: ncc.collective_permute([hbm(2)] * 2, [hbm(2)] * 2, [(0, 1)]),
        r"srcs has 2 tensors; allowed: exactly one",
    ),
    "sends twice": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1), (0, 0)]),
        r"rank 0 sends 2 times",
    ),
    "receives twice": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1), (1, 1)]),
        r"rank 1 receives 2 times",
    ),
    "pairs": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1, 2)]),
        r"allowed: \(source, target\) pairs",
    ),
    "channel count": (
        lambda: ncc.collective_permute_implicit(
            [[hbm(2)]] * 3, [[hbm(2)]] * 3, TWO, channel_ids=[0, 1, 2]
        ),
        r"3 channels for groups of 2 ranks; allowed: 4 for .* all 16 devices .* 2 for others",
    ),
    "channels and ids": (
        lambda: ncc.collective_permute_implicit([[hbm(2)]] * 2, [[hbm(2)]] * 2, TWO),
        r"srcs_by_channel has 2 channels, channel_ids=\[0\] names 1",
    ),
    "flat lists": (
        lambda: ncc.collective_permute_implicit([hbm(2)], [hbm(2)], TWO),
        r"for each channel, a list of exactly one tensor",
    ),
    "two in a channel": (
        lambda: ncc.collective_permute_implicit([[hbm(2)] * 2], [[hbm(2)] * 2], TWO),
        r"for each channel, a list of exactly one tensor",
    ),
    "iteration": (
        lambda: ncc.collective_permute_implicit_current_processing_rank_id(-1, TWO),
        r"iteration_id=-1; allowed: an int from 0, or a register",
    ),
    "channel": (
        lambda: ncc.collective_permute_implicit_current_processing_rank_id(0, TWO, 4),
        r"channel_id=4; allowed: 0 to 3",
    ),
    "unknown keyword": (
        lambda: ncc.all_reduce([hbm(2)], [hbm(2)], TWO, operator=nl.add),
        r"unexpected keyword argument 'operator'; its parameters are",
    ),
}


def variable(name="all_to_all_v", meta=(3, 2), dtype=nl.uint32, src=hbm, dst=(1, 8), **options):
    def body():
        table = nl.zeros(meta, dtype=dtype, buffer=nl.shared_hbm)
        function = getattr(ncc, name)
        function([src(1, 8)], [hbm(*dst)], TWO, table, **options)

    return body


ACCEPTED["metadata"] = variable()
REFUSED |= {
    "metadata shape": (variable(meta=(2, 2)), r"metadata_tensor has shape \(2, 2\).*\(3, 2\) or"),
    "metadata rows": (variable(has_rdispls=True), r"shape \(3, 2\) in shared_hbm; .*\(4, 2\)"),
    "metadata dtype": (variable(dtype=nl.int32), r"metadata_tensor has dtype int32.*uint32"),
    "slots": (variable(dst=(1, 7)), r"dst has 7 elements; .* into 2 equal slots"),
    "variable in SBUF": (variable(src=sbuf), r"in SBUF and|must be in HBM"),
    "flag": (variable(recv_counts_known=3), r"recv_counts_known=3; allowed: True or False"),
}

# What AWS calls a current limitation runs here, and is reported by check="strict".
LIMITED = {
    "gather along 1 in HBM": (
        lambda: ncc.all_gather([hbm(2, 3)], [hbm(2, 6)], TWO, 1),
        r"collective_dim=1 in shared_hbm; allowed: at most 0",
    ),
    "scatter along 1": (
        lambda: ncc.reduce_scatter([sbuf(2, 6)], [sbuf(2, 3)], TWO, 1, nl.add),
        r"collective_dim=1 in sbuf",
    ),
    "three dimensions in SBUF": (
        lambda: ncc.all_gather([sbuf(2, 3, 2)], [sbuf(2, 6, 2)], TWO, 1),
        r"SBUF tensors of 3 dimensions",
    ),
    "all_to_all in SBUF": (
        lambda: ncc.all_to_all([sbuf(2, 3)], [sbuf(2, 3)], TWO, 0),
        r"all_to_all takes tensors in HBM",
    ),
    "permute in SBUF": (
        lambda: ncc.collective_permute([sbuf(2, 3)], [sbuf(2, 3)], [(0, 1), (1, 0)]),
        r"collective_permute takes tensors in HBM",
    ),
    "no ring": (
        lambda: ncc.collective_permute([hbm(2)], [hbm(2)], [(0, 1)]),
        r"source_target_pairs=\[\[0, 1\]\]; allowed: one ring",
    ),
    "channel numbers": (
        lambda: ncc.collective_permute_implicit([[hbm(2)]], [[hbm(2)]], TWO, [1]),
        r"channel_ids=\[1\]; allowed: consecutive from 0",
    ),
    "group of two": (variable("all_gather_v"), r"groups of 2 ranks; allowed: exactly 4"),
    "displacements": (variable(meta=(4, 2), has_rdispls=True), r"has_rdispls=True on trn2"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    launch(ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    body, message = REFUSED[name]
    with pytest.raises(NkiValidationError, match=message) as caught:
        launch(body)
    assert "test_constraints.py" in caught.value.location
    assert caught.value.instruction.startswith("ncc.")


@pytest.mark.parametrize("name", LIMITED)
def test_limitations_are_reported_in_strict_mode_only(name):
    body, message = LIMITED[name]
    launch(body)
    with pytest.raises(NkiValidationError, match=message):
        launch(body, check="strict")


def test_priority_on_trn3():
    launch(reduce(t(4, 3), t(4, 3), priority=3), platform="trn3")
    with pytest.raises(NkiValidationError, match=r"priority=4; allowed: 0 to 3"):
        launch(reduce(t(4, 3), t(4, 3), priority=4), platform="trn3")


def test_four_channels_need_all_devices():
    group = [list(range(16))]

    def body():
        four = [[[hbm(2)] for _ in range(4)] for _ in range(2)]
        ncc.collective_permute_implicit(*four, group, [0, 1, 2, 3])

    launch(body, ranks=16)


def test_a_group_outside_a_world_says_what_to_do():
    @nki.jit
    def kernel(x):
        ncc.all_reduce([hbm(2)], [hbm(2)], TWO, nl.add)
        return x

    with pytest.raises(NkiValidationError, match=r"names rank 1; the world has one rank.*World"):
        nki.simulate(kernel)(np.zeros((1, 1), np.float32))


# ---- ReplicaGroup and programs ------------------------------------------------------------------


def test_replica_group_is_a_value():
    group = ncc.ReplicaGroup([[0, 2], (1, 3)])
    assert group == ncc.ReplicaGroup(((0, 2), (1, 3))) == ncc.ReplicaGroup(group)
    assert group != ncc.ReplicaGroup([[0, 1], [2, 3]])
    assert hash(group) == hash(copy.deepcopy(group))
    assert pickle.loads(pickle.dumps(group)) == group
    assert repr(group) == "ReplicaGroup([[0, 2], [1, 3]])"
    assert isinstance(group, nl.NKIObject)
    assert ncc.ReplicaGroup(np.arange(4).reshape(2, 2)).groups == ((0, 1), (2, 3))


@pytest.mark.parametrize("groups", [[], [[]], [[0, 1], [1]], [[0, "a"]], 3, [[True]]])
def test_replica_group_refuses(groups):
    with pytest.raises(NkiValidationError):
        ncc.ReplicaGroup(groups)


def test_a_kernel_is_traced_anew_for_another_group():
    def kernel(x, group):
        dst = hbm(*x.shape)
        src = hbm(*x.shape)
        nisa.dma_copy(dst=src, src=x)
        ncc.all_reduce([src], [dst], group, nl.add)
        return dst

    xs = [np.full((1, 2), 10.0**n, np.float32) for n in range(4)]
    with World(ranks=4, host="inprocess") as world:
        for groups in ([[0, 1], [2, 3]], [[0, 3], [1, 2]]):
            outs = world.run(kernel, nki.per_rank(xs), ncc.ReplicaGroup(groups))
            for group in groups:
                for rank in group:
                    assert outs[rank][0, 0] == sum(xs[g][0, 0] for g in group)


def test_programs_with_collectives_come_back_from_bytes():
    def kernel(x):
        a, b = hbm(2, 3), hbm(4, 3)
        nisa.dma_copy(dst=a, src=x)
        ncc.all_gather([a], [b], TWO, 0)
        ncc.collective_permute([a], [a], [(0, 1), (1, 0)])
        rank = ncc.collective_permute_implicit_current_processing_rank_id(1, TWO)
        ncc.collective_permute_implicit([[a], [a]], [[b[0:2]], [b[2:4]]], TWO, [0, 1])
        nisa.dma_copy(dst=x, src=b.reshape((2, 2, 3)).select(0, rank))

    x = np.zeros((2, 3), np.float32)
    with World(ranks=2, host="inprocess") as world:
        world.run(kernel, x)
        _, compiled = list(session().cache._kept.values())[-1]
    packed = encode(compiled.programs[0])
    assert encode(decode(packed)) == packed
