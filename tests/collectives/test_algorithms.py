"""Each algorithm alone, on a network of queues: results, the documented order, who sends what."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import ml_dtypes
import numpy as np
import pytest

from nki_dist import arch, dtypes, errors
from nki_dist.collectives.algorithms.hierarchical import Hierarchical
from nki_dist.collectives.algorithms.kangaring import KangaRing
from nki_dist.collectives.algorithms.mesh import Mesh
from nki_dist.collectives.algorithms.rdh import Rdh
from nki_dist.collectives.algorithms.ring import Ring
from nki_dist.collectives.algorithms.single_step_mesh import SingleStepMesh
from nki_dist.collectives.choose import choose
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.collectives.reduction import reduction
from tests.collectives.network import Network

PAIRED = {n: KangaRing([(2 * k, 2 * k + 1) for k in range(n // 2)]) for n in (2, 4, 6, 8, 16, 32)}
FLAT = {"ring": Ring(), "mesh": Mesh(), "single_step_mesh": SingleStepMesh()}
CASES = [(name, n, a) for name, a in FLAT.items() for n in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32)]
CASES += [("rdh", n, Rdh()) for n in (1, 2, 4, 8, 16, 32)]
CASES += [("kangaring", n, a) for n, a in PAIRED.items()]
NODES = {4: [[0, 2], [1, 3]], 6: [[0, 1, 2], [3, 4, 5]], 8: [[0, 1], [2, 3], [4, 5], [6, 7]]}
CASES += [("hierarchical", n, Hierarchical(nodes, Ring(), Mesh())) for n, nodes in NODES.items()]
CASES += [("hierarchical", 8, Hierarchical(NODES[8], PAIRED[2], Rdh()))]
CASES += [
    ("hierarchical", 32, Hierarchical([list(range(n, 32, 4)) for n in range(4)], Rdh(), Ring()))
]
IDS = [f"{name}-{n}" for name, n, _ in CASES]


def data(size, length, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(length).astype(dtype) for _ in range(size)]


SUM = reduction("add", dtypes.float32)


@pytest.mark.parametrize(("name", "size", "algorithm"), CASES, ids=IDS)
@pytest.mark.parametrize("last_first", [False, True])
def test_all_gather(name, size, algorithm, last_first):
    xs = data(size, 5)
    outs = Network(size, last_first).run(lambda x: algorithm.all_gather(x, xs[x.me].copy()))
    for out in outs:
        np.testing.assert_array_equal(np.stack(out), np.stack(xs))


@pytest.mark.parametrize(("name", "size", "algorithm"), CASES, ids=IDS)
@pytest.mark.parametrize("length", [0, 1, 3, 16, 37])
def test_all_reduce(name, size, algorithm, length):
    xs = [np.rint(x * 9) for x in data(size, length)]
    outs = Network(size).run(lambda x: algorithm.all_reduce(x, xs[x.me].copy(), SUM))
    for out in outs:
        np.testing.assert_array_equal(np.concatenate(out), sum(xs))


def pairwise(values, add=np.add):
    if len(values) == 1:
        return values[0]
    return pairwise([add(a, b) for a, b in zip(values[::2], values[1::2])], add)


def pieces(chunks, rows):
    """Copies of chunks: a list, or the rows of one array."""
    return np.stack(chunks) if rows else [c.copy() for c in chunks]


def in_order(values, add=np.add):
    return reduce(add, values)


def documented(name, xs, chunk, algorithm, n, add=np.add):
    """Chunk `chunk` of the members' arrays xs[member], added in the documented order."""
    parts = [x[chunk] for x in xs]
    if name == "ring":
        return in_order([parts[(chunk + 1 + k) % n] for k in range(n)], add)
    if name in ("mesh", "single_step_mesh"):
        return in_order(parts, add)
    if name == "rdh":
        return pairwise(parts, add)
    half = (len(parts[0]) + 1) // 2
    pairs = [((chunk // 2 + 1 + k) % (n // 2)) for k in range(n // 2)]
    first = in_order([parts[2 * p + s] for p in pairs for s in (0, 1)], add)
    second = in_order([parts[2 * p + s] for p in pairs for s in (1, 0)], add)
    return np.concatenate([first[:half], second[half:]])


@pytest.mark.parametrize(
    ("name", "size", "algorithm"),
    [c for c in CASES if c[0] != "hierarchical"],
    ids=[i for i in IDS if "hierarchical" not in i],
)
@pytest.mark.parametrize("rows", [False, True])
def test_the_sides_of_every_addition_are_the_documented_ones(name, size, algorithm, rows):
    """Addition commutes; an operator that doesn't shows which operand was on the left."""

    def sided(a, b, out=None):
        return np.add(3 * a, b, out=out)

    operator = replace(SUM, combine=sided, wide=np.dtype(np.int64))
    xs = [list(np.split(np.arange(7 * size) * (n + 2), size)) for n in range(size)]
    outs = Network(size).run(
        lambda x: algorithm.reduce_scatter(x, pieces(xs[x.me], rows), operator)
    )
    for rank, out in enumerate(outs):
        np.testing.assert_array_equal(out, documented(name, xs, rank, algorithm, size, sided))


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize(("size", "length"), [(2, 2), (4, 12), (8, 16), (32, 32)])
def test_what_is_left_may_be_overwritten_as_soon_as_a_member_is_done(size, length, last_first):
    """The members' own tensors, not copies: nobody else reads one afterwards, nobody writes one."""
    xs = [np.rint(x * 9) for x in data(size, length)]
    total, kept = sum(xs), [x.copy() for x in xs]
    assert Rdh().leaves(length, size)

    def member(x):
        parts = yield from Rdh().all_reduce(x, xs[x.me].reshape(-1), SUM)
        found = np.concatenate(parts)
        np.testing.assert_array_equal(xs[x.me], kept[x.me])
        xs[x.me][:] = np.nan
        return found

    for out in Network(size, last_first).run(member):
        np.testing.assert_array_equal(out, total)


@pytest.mark.parametrize(("length", "size"), [(0, 4), (7, 4), (9, 1)])
def test_what_is_not_cut_into_rows_isnt_left(length, size):
    assert not Rdh().leaves(length, size)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3", "float8_e5m2", "float16"])
@pytest.mark.parametrize(
    ("name", "size", "algorithm"),
    [c for c in CASES if c[0] != "hierarchical" and c[1] > 1],
    ids=[i for i in IDS if "hierarchical" not in i and not i.endswith("-1")],
)
def test_narrow_types_are_rounded_once_after_the_documented_order(name, size, algorithm, dtype):
    narrow, exact = reduction("add", getattr(dtypes, dtype)), getattr(ml_dtypes, dtype, np.float16)
    xs = [list(np.split(x, size)) for x in data(size, 7 * size, exact, seed=6)]
    wide = [[c.astype(np.float32) for c in x] for x in xs]
    outs = Network(size).run(
        lambda x: algorithm.reduce_scatter(x, [narrow.widen(c) for c in xs[x.me]], narrow)
    )
    for rank, out in enumerate(outs):
        want = documented(name, wide, rank, algorithm, size).astype(exact)
        assert narrow.finish(out).tobytes() == want.tobytes()


def test_hierarchical_reduces_within_nodes_first():
    nodes = NODES[6]
    algorithm = Hierarchical(nodes, Mesh(), Mesh())
    xs = [list(np.split(x, 6)) for x in data(6, 30, seed=4)]
    outs = Network(6).run(lambda x: algorithm.reduce_scatter(x, [c.copy() for c in xs[x.me]], SUM))
    for rank, out in enumerate(outs):
        sums = [in_order([xs[m][rank] for m in node]) for node in nodes]
        np.testing.assert_array_equal(out, in_order(sums))


@pytest.mark.parametrize(("name", "size", "algorithm"), CASES, ids=IDS)
def test_all_reduce_gives_all_members_the_same_bits(name, size, algorithm):
    xs = data(size, 41, ml_dtypes.bfloat16, seed=5)
    narrow = reduction("add", dtypes.bfloat16)
    bits = set()
    for last_first in (False, True):
        network = Network(size, last_first)
        outs = network.run(lambda x: algorithm.all_reduce(x, narrow.widen(xs[x.me]), narrow))
        bits |= {np.concatenate(out).tobytes() for out in outs}
    assert len(bits) == 1
    got = np.frombuffer(bits.pop(), ml_dtypes.bfloat16).astype(np.float64)
    exact = np.sum([x.astype(np.float64) for x in xs], axis=0)
    size_of_step = np.maximum(np.abs(exact), 1e-3) * 2.0**-8
    assert np.all(np.abs(got - exact) <= size_of_step * 1.01)


@pytest.mark.parametrize(
    ("algorithm", "messages", "sent"),
    [
        (Ring(), 8 * 7 * 2, 2 * 7),
        (Mesh(), 8 * 7 * 2, 2 * 7),
        (SingleStepMesh(), 8 * 7, 7 * 8),
        (Rdh(), 8 * 3 * 2, 2 * 7),
    ],
    ids=["ring", "mesh", "single_step_mesh", "rdh"],
)
def test_traffic_of_an_all_reduce_is_the_documented_one(algorithm, messages, sent):
    """In chunks of one eighth of the buffer, per member; see hardware.md's table."""
    network = Network(8)
    xs = data(8, 80)
    network.run(lambda x: algorithm.all_reduce(x, xs[x.me].copy(), SUM))
    assert network.messages == messages == sum(algorithm.messages("all_reduce", 8))
    assert {n // (10 * 4) for n in network.sent.values()} == {sent}


def question(op, nbytes, group, platform="trn2", lnc=2):
    platform = arch.get(platform)
    return Question(op, nbytes, tuple(group), RankLayout.of(platform, lnc), platform)


KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("op", "nbytes", "group", "name"),
    [
        ("all_reduce", KIB, range(8), "single_step_mesh"),
        ("all_reduce", 512 * KIB, range(64), "mesh"),
        ("all_gather", 512 * KIB, range(64), "mesh"),
        ("all_reduce", MIB - 4, range(64), "mesh"),
        ("all_reduce", MIB, range(64), "rdh"),
        ("all_reduce", 2 * MIB, range(12), "kangaring"),
        ("all_reduce", 2 * MIB, range(6), "ring"),
        ("all_reduce", 56 * MIB, range(64), "rdh"),
        ("all_reduce", 100 * MIB, range(64), "kangaring"),
        ("all_reduce", 100 * MIB, range(0, 64, 4), "ring"),
        ("all_reduce", 56 * MIB + 4, range(64), "kangaring"),
        ("all_reduce", 100 * MIB, [*range(8), *range(8, 10)], "ring"),  # half a chip
        ("all_reduce", 47299, range(8), "single_step_mesh"),  # 7 * 0.75 of it in a hop, 248320
        ("all_reduce", 47300, range(8), "mesh"),
        ("reduce_scatter", KIB, range(8), "mesh"),
        ("all_gather", 4 * KIB, (0, 64, 128), "mesh"),
        ("all_gather", MIB, (0, 64, 128), "ring"),
        ("all_gather", 4 * KIB, range(0, 256, 64), "mesh"),
        ("all_gather", 4 * KIB, range(0, 320, 64), "ring"),  # five aren't a small group
        ("all_gather", 4 * KIB, range(0, 512, 64), "rdh"),
        ("all_reduce", 62500, range(0, 256, 64), "single_step_mesh"),  # 3 * 0.5 of it, 93750
        ("all_reduce", 62502, range(0, 256, 64), "mesh"),
        ("all_gather", 56 * MIB, range(0, 512, 64), "rdh"),
        ("all_gather", 56 * MIB + 4, range(0, 512, 64), "ring"),
        ("all_gather", 56 * MIB + 4, range(0, 512, 4), "hierarchical(ring, rdh)"),
        ("all_reduce", 48, [*range(8), *range(64, 68)], "ring"),  # whole chips, unequal nodes
        ("all_reduce", 100 * MIB, [*range(8), *range(64, 68)], "ring"),
        ("all_gather", 4 * MIB, range(0, 512, 64), "rdh"),
        ("all_gather", 100 * MIB, range(0, 512, 64), "ring"),
        ("all_gather", 4 * KIB, range(128), "hierarchical(mesh, mesh)"),
        ("all_reduce", 400 * MIB, range(512), "hierarchical(kangaring, rdh)"),
        ("all_reduce", 4 * KIB, [0, 1, 64], "ring"),
    ],
)
def test_choice(op, nbytes, group, name):
    assert str(choose(question(op, nbytes, group))) == name


def test_large_reductions_of_trn1_use_one_flat_ring():
    assert str(choose(question("all_reduce", 100 * MIB, range(64), "trn1", 1))) == "ring"
    most = question("all_reduce", 56 * MIB, range(64), "trn1", 1)
    assert str(choose(most)) == "hierarchical(rdh, rdh)"


@pytest.mark.parametrize(("platform", "nbytes"), [("trn1", 17737), ("trn3", 11824)])
def test_a_single_step_pays_while_a_link_carries_the_rest_in_a_hop(platform, nbytes):
    """1940 ns at 48 and at 32 GB/s: seven members' buffers, three quarters of each."""
    for n, name in ((nbytes, "single_step_mesh"), (nbytes + 1, "mesh")):
        assert str(choose(question("all_reduce", n, range(8), platform, 1))) == name


def test_a_single_step_is_compared_with_the_torus_in_whatever_order_its_links_are_given():
    small = question("all_reduce", 47299, range(8))
    turned = small.arch.with_values("a test", link_gbps={"z": 64.0, "xy": 128.0})
    assert str(choose(replace(small, arch=turned))) == "single_step_mesh"


def test_kangaring_pairs_neighbours_on_their_chips():
    mixed = question("all_reduce", 100 * MIB, (0, 4, 1, 5, 2, 6, 3, 7))
    assert choose(mixed).pairs == [(0, 2), (4, 6), (1, 3), (5, 7)]
    parts = question("all_reduce", 100 * MIB, (0, 4, 1, 5))
    assert choose(parts, "kangaring").pairs == [(0, 1), (2, 3)]
    odd = replace(question("all_reduce", 100 * MIB, range(6)), layout=RankLayout(3, 48))
    assert str(choose(odd)) == "ring"


def test_hierarchical_parts_are_chosen_for_their_own_ranks_and_bytes():
    """Node 0 has whole chips, node 1 hasn't; a share of what is large isn't."""
    group = [*range(8), *range(64, 68), *range(68, 76, 2)]
    assert str(choose(question("all_gather", 57 * MIB, group))) == "hierarchical(kangaring, rdh)"
    forced = choose(question("all_gather", 57 * MIB, range(0, 64, 4)), "hierarchical")
    assert str(forced) == "hierarchical(ring, rdh)"
    assert forced.nodes == [list(range(16))]


def test_an_ultraserver_is_one_node():
    q = question("all_reduce", 100 * MIB, range(256), "trn2u")
    assert str(choose(q)) == "hierarchical(kangaring, rdh)"
    one = replace(q, layout=RankLayout.of(q.arch, 2, 256))
    assert str(choose(one)) == "kangaring"


def test_forced_choice():
    small = question("all_reduce", 64, range(6))
    for name in ("ring", "mesh", "single_step_mesh", "kangaring"):
        assert str(choose(small, name)) == name
    assert str(choose(question("all_reduce", 64, range(8)), "rdh")) == "rdh"
    with pytest.raises(errors.LaunchError, match=r"a group of 6 ranks.* needs a power of two"):
        choose(small, "rdh")
    with pytest.raises(errors.LaunchError, match="needs an even number of members"):
        choose(question("all_reduce", 64, range(5)), "kangaring")
    with pytest.raises(errors.LaunchError, match="needs an equal number on each node of members"):
        choose(question("all_reduce", 64, (0, 1, 64)), "hierarchical")
    with pytest.raises(errors.LaunchError, match="allowed: single_step_mesh, mesh, rdh, kangaring"):
        choose(small, "rings")
