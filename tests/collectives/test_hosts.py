"""The same bits whoever runs the cores: in this process, in actors, packed or one by one, twice."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import VARIABLE
from tests.collectives import kernels as K
from tests.collectives.worlds import normal

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

GROUPS = [[3, 0], [1, 2]]
RG = ncc.ReplicaGroup(GROUPS)


def everything(world):
    """Bytes of many results, of operations whose rounding depends on the order."""
    xs = normal(1, 4, (4, 6), ml_dtypes.bfloat16)
    ys = normal(2, 4, (8, 3), np.float32)
    per, every = nki.per_rank(xs), ncc.ReplicaGroup([[2, 0, 3, 1]])
    metas = nki.per_rank(
        [np.array([[r, 3, 1, 2], [2, 0, r, 4], [0] * 4], np.uint32) for r in range(4)]
    )
    outs = [
        world.run(K.all_reduce, per, every, nl.add),
        world.run(K.all_reduce, nki.per_rank(ys), every, nl.add, "sbuf"),
        world.run(K.reduce_scatter, nki.per_rank(ys), every, nl.add, 4),
        world.run(K.all_gather, per, RG, 2, "sbuf", 1),
        world.run(K.all_to_all, per, RG),
        world.run(K.ring, per, every, 4, 2),
        world.run(K.permute, per, [(0, 3), (3, 1)]),
        world.run(K.ring_reduce, per, nki.per_rank(xs[::-1]), RG, nl.add),
        world.run(K.variable, per, 16, metas, every, True),
        world.run(K.variable, per, 16, metas, every, False, "sbuf"),
    ]
    return [np.asarray(a).tobytes() for out in outs for o in out for a in _tensors(o)]


def _tensors(out):
    return out if isinstance(out, tuple) else (out,)


@pytest.mark.slow
@pytest.mark.parametrize(("lnc", "sizes"), [(1, [1]), (2, [1, 2, 4])])
def test_the_same_bits_everywhere(lnc, sizes):
    found = []
    for host, size in [("inprocess", "auto"), *(("ray", n) for n in sizes)]:
        with nki.World(ranks=4, lnc=lnc, host=host, cores_per_actor=size) as world:
            found += [everything(world) for _ in range(2 if host == "ray" else 18)]
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize("name", [a.name for a in ALGORITHMS])
def test_forced_algorithms_give_exact_sums(name, monkeypatch):
    monkeypatch.setenv(VARIABLE, name)
    xs = [np.rint(x * 9) for x in normal(3, 8, (16, 3), np.float32)]
    group = ncc.ReplicaGroup([list(range(8))])
    with nki.World(ranks=8, host="inprocess") as world:
        outs = world.run(K.all_reduce, nki.per_rank(xs), group, nl.add)
        scattered = world.run(K.reduce_scatter, nki.per_rank(xs), group, nl.add, 8)
    for rank in range(8):
        np.testing.assert_array_equal(outs[rank][0], sum(xs))
        np.testing.assert_array_equal(scattered[rank][0], sum(xs)[2 * rank : 2 * rank + 2])


def test_a_forced_algorithm_is_none_of_a_permutation_s_business(monkeypatch):
    """Three ranks can't use RDH; what they pass on needs no algorithm."""
    monkeypatch.setenv(VARIABLE, "rdh")
    xs = normal(4, 3, (4, 5), np.float32)
    with nki.World(ranks=3, host="inprocess") as world:
        outs = world.run(K.permute, nki.per_rank(xs), [(0, 1), (1, 2), (2, 0)])
        with pytest.raises(errors.LaunchError, match="power of two"):
            world.run(K.all_reduce, nki.per_rank(xs), ncc.ReplicaGroup([[0, 1, 2]]), nl.add)
    for rank in range(3):
        np.testing.assert_array_equal(outs[rank][0], xs[rank - 1])


def test_the_order_of_a_sum_follows_the_algorithm(monkeypatch):
    """2**24 + 1 + 1: two ones are lost one by one and survive together."""
    xs = [np.full((1, 4), v, np.float32) for v in (2.0**24, 1, 1, 0)]
    group = ncc.ReplicaGroup([[0, 1, 2, 3]])
    found = {}
    for name in ("mesh", "ring"):
        monkeypatch.setenv(VARIABLE, name)
        with nki.World(ranks=4, host="inprocess") as world:
            out = world.run(K.all_reduce, nki.per_rank(xs), group, nl.add)
        found[name] = [float(v) - 2.0**24 for v in np.asarray(out[0]).reshape(-1)]
    # Mesh: ((x0 + x1) + x2) + x3. Ring, chunk c: from member c + 1 on, modulo 4.
    assert found["mesh"] == [0, 0, 0, 0]
    assert found["ring"] == [2, 0, 0, 0]


def test_unknown_algorithm(monkeypatch):
    monkeypatch.setenv(VARIABLE, "rings")
    with (
        pytest.raises(
            errors.LaunchError, match=r"'rings'; allowed: single_step_mesh, mesh, rdh, kangaring"
        ),
        nki.World(ranks=2, host="inprocess") as world,
    ):
        world.run(K.all_gather, np.zeros((2, 2), np.float32), ncc.ReplicaGroup([[0, 1]]), 2)


def test_one_program_for_many_ranks():
    """rank_id is a register, so a kernel is traced once however many ranks run it."""
    traced = []

    @nki.jit
    def pick(table):
        traced.append(1)
        out = nl.ndarray(table.shape[1:], dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=table.select(0, ncc.rank_id()))
        return out

    table = np.arange(5 * 6, dtype=np.float32).reshape(5, 2, 3)
    with nki.World(ranks=5, host="inprocess") as world:
        outs = world.run(pick, table)
    for rank, out in enumerate(outs):
        np.testing.assert_array_equal(out, table[rank])
    assert len(traced) == 1
