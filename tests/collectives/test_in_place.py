"""Collectives that read members' tensors where they lie: order of sums, and who writes when."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.collectives import in_place
from nki_dist.collectives.algorithms.kangaring import KangaRing
from nki_dist.collectives.algorithms.mesh import Mesh
from nki_dist.collectives.algorithms.rdh import Rdh
from nki_dist.collectives.algorithms.ring import Ring
from nki_dist.collectives.reduction import reduction
from nki_dist.program import instructions
from tests.collectives.network import Network
from tests.collectives.worlds import normal
from tests.compiler.compiling import compiled

PAIRS = {2: [(0, 1)], 6: [(0, 3), (4, 1), (5, 2)], 8: [(0, 1), (2, 3), (4, 5), (6, 7)]}
CASES = [(n, a) for n in (2, 3, 5, 8) for a in (Ring(), Mesh())]
CASES += [(n, Rdh()) for n in (2, 4, 8)] + [(n, KangaRing(p)) for n, p in PAIRS.items()]
TYPES = [dtypes.float32, dtypes.bfloat16, dtypes.int32]


def members_arrays(size, length, dtype):
    rng = np.random.default_rng(size)
    scale = 2.0 ** rng.integers(-6, 6, (size, 1))  # sums depend on their order
    return list((100 * scale * rng.standard_normal((size, length))).astype(dtype.storage))


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("aliased", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize(("size", "algorithm"), CASES, ids=lambda c: str(c))
def test_sums_have_the_bits_of_the_algorithm(
    size, algorithm, dtype, aliased, last_first, monkeypatch
):
    """And what a member does to its tensors as soon as it is done disturbs nobody."""
    monkeypatch.setattr(in_place, "BLOCK", 5)
    xs = members_arrays(size, 8 * 11 + 3, dtype)
    add = reduction("add", dtype)
    sent = Network(size).run(lambda x: algorithm.all_reduce(x, add.widen(xs[x.me]), add))

    def member(x):
        source = xs[x.me].copy()
        result = source if aliased else np.zeros_like(source)
        yield from in_place.all_reduce(x, source, result, add, algorithm)
        yield from in_place.finished(x)
        found = result.copy()
        source[:] = 77  # the program goes on
        result[:] = 78
        return found

    for found, parts in zip(Network(size, last_first).run(member), sent):
        assert found.tobytes() == np.concatenate(parts).tobytes()


@pytest.mark.parametrize(
    ("size", "opcode"), [(2, "all_reduce"), (7, "all_reduce"), (7, "all_gather")]
)
def test_messages_are_as_many_as_are_said(size, opcode):
    network = Network(size)
    add = reduction("add", dtypes.float32)

    def member(x):
        source, result = np.ones(70, np.float32), np.zeros(70, np.float32)
        for _ in range(3):
            if opcode == "all_reduce":
                yield from in_place.all_reduce(x, source, result, add, Ring())
            else:
                yield from x.all_to_all([source] * x.size)
        yield from in_place.finished(x)

    network.run(member)
    assert network.messages == size * in_place.messages(opcode, size, 3)


def test_results_that_lie_in_sources_are_found():
    whole = np.zeros(60, np.float32)
    a, b, c = whole[:20], whole[20:40], whole[40:]
    assert in_place.are_apart([a], [b], same=False)
    assert in_place.are_apart([a, b], [a, b], same=True)
    assert not in_place.are_apart([a], [a], same=False)
    assert not in_place.are_apart([a, b], [b, a], same=True)  # the first result is another's source
    assert not in_place.are_apart([a], [whole[10:30]], same=True)
    assert not in_place.are_apart([a, c], [b, whole], same=True)
    assert not in_place.are_apart([whole[::2]], [np.zeros(30, np.float32)], same=True)


@nki.jit
def gathered_into_its_source(x, group, ranks):
    """Every rank's source is the block of the result that rank 0's part belongs to."""
    rows = x.shape[0]
    whole = nl.ndarray((ranks * rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=whole[0:rows, :], src=x)
    ncc.all_gather(srcs=[whole[0:rows, :]], dsts=[whole], replica_group=group, collective_dim=0)
    return whole


@nki.jit
def exchanged_results(x, y, group):
    """The first result is the second source, and the other way round."""
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    ncc.all_reduce(srcs=[a, b], dsts=[b, a], replica_group=group, op=nl.add)
    return a, b


@nki.jit
def overwritten_at_once(x, group, rounds):
    """After each all-reduce its source is written anew, with the rank's own numbers."""
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((rounds, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(rounds):
        nisa.dma_copy(dst=mine, src=x)
        ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
        nisa.dma_copy(dst=mine, src=total)
        nisa.dma_copy(dst=sums[n], src=total)
        ncc.all_reduce(srcs=[mine], dsts=[mine], replica_group=group, op=nl.maximum)
    return sums


SHAPE = (128, 600)  # 300 KiB of float32
HOSTS = [{"host": "inprocess"}, {"cores_per_actor": 1}, {"transport": "messages"}]
EVERY = ncc.ReplicaGroup([[1, 0, 2]])


@pytest.mark.parametrize("options", HOSTS, ids=["inprocess", "ring", "messages"])
def test_tensors_that_overlap_and_programs_that_go_on(options):
    xs, ys = normal(1, 3, SHAPE, np.float32), normal(2, 3, SHAPE, ml_dtypes.bfloat16)
    zs = [np.rint(x * 9) for x in xs]
    whole = np.concatenate([xs[1], xs[0], xs[2]])
    with nki.World(ranks=3, **options) as world:
        for out in world.run(gathered_into_its_source, nki.per_rank(xs), EVERY, 3):
            np.testing.assert_array_equal(out, whole)
        others = [z.copy() for z in zs[::-1]]
        swapped = world.run(exchanged_results, nki.per_rank(zs), nki.per_rank(others), EVERY)
        for a, b in swapped:
            np.testing.assert_array_equal(a, sum(zs))
            np.testing.assert_array_equal(b, sum(zs))
        outs = world.run(overwritten_at_once, nki.per_rank(zs), EVERY, 6)
        for out in outs:
            np.testing.assert_array_equal(out, np.stack([sum(zs)] * 6))
        world.run(overwritten_at_once, nki.per_rank(ys), EVERY, 2)


def test_dry_runs_count_the_same_messages():
    xs = normal(1, 3, SHAPE, np.float32)
    arguments = (overwritten_at_once, nki.per_rank(xs), EVERY, 2)
    with nki.World(ranks=3, lnc=2, host="inprocess") as world:
        run = world.run(*arguments, profile=True)
        dry = world.dry_run(*arguments)
    assert [report.messages for report in run.reports] == list(dry.messages)
    told = in_place.messages("all_reduce", 3, 1)
    assert max(dry.messages) == 4 * (told + 1)  # and each time to the rank's other core


def test_what_is_small_or_among_many_goes_as_the_algorithm_says():
    def chosen(shape, members):
        i = ncc_call(shape, members)
        return in_place.is_in_place(i, members, Ring())

    assert chosen((128, 512), 16)
    assert not chosen((128, 511), 16)
    assert not chosen((128, 512), 17)
    assert not chosen((128, 512), 1)


def ncc_call(shape, members):
    def kernel(x):
        mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=mine, src=x)
        group = ncc.ReplicaGroup([list(range(members))])
        ncc.all_reduce(srcs=[mine], dsts=[mine], replica_group=group, op=nl.add)
        return mine

    program = compiled(kernel, (shape, np.float32)).programs[0]
    return next(i for i in instructions(program.body) if i.opcode == "all_reduce")
