"""ReplicaGroup as a value, and programs that hold groups."""

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
from tests.collectives.constraints import TWO, hbm


def test_replica_group_is_a_value():
    group = ncc.ReplicaGroup([[0, 2], (1, 3)])
    assert group == ncc.ReplicaGroup(((0, 2), (1, 3))) == ncc.ReplicaGroup(group)
    assert group != ncc.ReplicaGroup([[0, 1], [2, 3]])
    assert hash(group) == hash(copy.deepcopy(group))
    assert pickle.loads(pickle.dumps(group)) == group
    assert repr(group) == "ReplicaGroup([[0, 2], [1, 3]])"
    assert isinstance(group, nl.NKIObject)
    assert ncc.ReplicaGroup(np.arange(4).reshape(2, 2)).groups == ((0, 1), (2, 3))


@pytest.mark.parametrize(
    ("op", "operand", "groups"),
    [
        ("bitwise_and", 0, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("div", 4, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mod", 4, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("bitwise_and", 5, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("div", 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        ("mod", 9, [[r] for r in range(8)]),
    ],
)
def test_replica_group_from_partition(op, operand, groups):
    """The first three are the documentation's examples."""
    made = ncc.ReplicaGroup.from_partition_op(8, getattr(ncc.rg_partition_op, op), operand)
    assert made == ncc.ReplicaGroup(groups)


@pytest.mark.parametrize(
    ("size", "op", "operand", "message"),
    [
        (0, ncc.rg_partition_op.div, 4, r"world_size=0 with rg_partition_op.div; .* int from 1"),
        (8, ncc.rg_partition_op.div, 0, r"operand=0 with rg_partition_op.div; .* int from 1"),
        (8, ncc.rg_partition_op.mod, True, r"operand=True with rg_partition_op.mod"),
        (8, ncc.rg_partition_op.bitwise_and, -1, r"operand=-1 .*bitwise_and; .* int from 0"),
        (8, "div", 4, r"op='div'; allowed: rg_partition_op.bitwise_and, rg_partition_op.div"),
    ],
)
def test_partitions_are_refused(size, op, operand, message):
    with pytest.raises(NkiValidationError, match=message):
        ncc.ReplicaGroup.from_partition_op(size, op, operand)


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
        _, compiled = list(session().cache._cache.values())[-1]
    packed = encode(compiled.programs[0])
    assert encode(decode(packed)) == packed
