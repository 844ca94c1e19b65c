"""Dry runs: the same control flow, messages and errors as full runs, without contents."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path

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
from nki_dist.timing import order
from tests.collectives import kernels as C
from tests.hosts import kernels as H
from tests.launcher import kernels as K

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "spmd"))

F32 = np.float32
GROUP = [[2, 0, 3, 1]]


def world(ranks=4, lnc=2, **options):
    return nki.World(ranks=ranks, lnc=lnc, host="inprocess", **options)


def same_as_full(made, kernel, *args, **kwargs):
    """The dry run after the full one, with the counts of both compared."""
    full = made.run(kernel, *args, profile=True, **kwargs)
    dry = made.dry_run(kernel, *args, profile=True, **kwargs)
    programs = made.compile(kernel, *args, **kwargs).programs
    reports = sorted(full.reports, key=lambda r: r.core)
    for report, instructions, messages in zip(reports, dry.instructions, dry.messages, strict=True):
        assert instructions == len(order(programs[report.core % len(programs)], report.trips))
        assert messages == report.messages
    assert dry.profile.total_us == full.profile.total_us
    return dry


def kernels_of_collectives():
    rng = np.random.default_rng(1)
    per = nki.per_rank([rng.integers(-9, 9, (4, 12)).astype(F32) for _ in range(4)])
    for where in ("hbm", "sbuf"):
        yield C.all_reduce, (per, GROUP, nl.add, where)
        yield C.reduce_scatter, (per, GROUP, nl.add, 4, where, 1)
        yield C.all_gather, (per, GROUP, 4, where, 1)
        yield C.all_to_all, (per, GROUP, where, 1)
        yield C.permute, (per, [(0, 3), (3, 1), (2, 2)], where)
        yield C.ring, (per, GROUP, 4, 2, where)
        yield C.ring_reduce, (per, per, GROUP, nl.add, where)
    yield C.private, (per, GROUP, 4)
    yield C.coalesced, (per, per, GROUP, 4)
    yield C.ring_in_dynamic_loop, (per, GROUP, 4)


@pytest.mark.parametrize("lnc", [1, 2])
def test_every_collective_sends_what_it_always_sends(lnc):
    made = world(lnc=lnc)
    for kernel, args in kernels_of_collectives():
        if kernel is C.ring_in_dynamic_loop and lnc == 2:
            continue
        dry = same_as_full(made, kernel, *args)
        assert dry.unchecked == ()


@pytest.mark.parametrize("name", [a.name for a in ALGORITHMS])
def test_every_algorithm(name, monkeypatch):
    monkeypatch.setenv(VARIABLE, name)
    made = world(8, 1)
    for kernel in (C.all_reduce, C.reduce_scatter):
        options = {"parts": 8} if kernel is C.reduce_scatter else {}
        x = np.ones((8, 5), F32)
        same_as_full(made, kernel, x, group=[list(range(8))], op=nl.add, **options)


@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("where", ["hbm", "sbuf"])
def test_variable_counts(gather, where):
    rng = np.random.default_rng(2)
    xs = nki.per_rank([rng.standard_normal((4, 10)).astype(F32) for _ in range(4)])
    metas = np.full((4, 4, 4), 1, np.uint32)
    metas[:, 0] = rng.integers(0, 9, (4, 4))
    made, args = world(), (32, nki.per_rank(list(metas)), GROUP, gather, where)
    same_as_full(made, C.variable, xs, *args)
    metas[2, 0, 3 if not gather else 0] = 40  # more than x has
    for run in (made.run, made.dry_run):
        with pytest.raises(errors.OutOfBoundsError, match=r"on rank 2: the chunk .*which has 40"):
            run(C.variable, xs, *args)


@nki.jit
def rounds_that_arrived(x, meta, group):
    """Counts received by all_to_all_v decide how often a barrier is passed."""
    src, dst = C.staged(x, "hbm"), C.hbm(x.shape, x.dtype)
    table = C._metadata(meta, "hbm")
    ncc.all_to_all_v([src], [dst], group, table, recv_counts_known=False)
    for n in range(2):
        count = nisa.register_alloc()
        nisa.register_load(count, table[2:3, n : n + 1])
        for _ in nl.dynamic_range(count):
            nisa.core_barrier(data=dst, cores=(0, 1))
    return dst


def test_counts_travel_though_data_does_not():
    metas = [
        np.array([[2, 3], [0, 2], [9, 9]], np.uint32),
        np.array([[4, 1], [0, 4], [9, 9]], "u4"),
    ]
    made, args = world(2), (nki.per_rank(metas), [[0, 1]])
    dry = same_as_full(made, rounds_that_arrived, np.ones((2, 5), F32), *args)
    assert dry.exchanges == {"ncc.all_to_all_v": 4, "nisa.core_barrier": 2 * (2 + 4 + 3 + 1)}
    assert made.dry_run(rounds_that_arrived, nki.TensorSpec((2, 5), F32), *args) == dry.__class__(
        **{**vars(dry), "profile": None}
    )


@nki.jit
def rounds_of_an_argument(x, counts):
    """Core 0 stores how often core 1 goes round, to an argument."""
    count = nisa.register_alloc(1)
    if nl.program_id(0) == 0:
        tile = C.sbuf((1, 1), nl.int32)
        nisa.memset(dst=tile, value=3)
        nisa.dma_copy(dst=counts, src=tile)
    nisa.core_barrier(data=counts, cores=(0, 1))
    if nl.program_id(0) == 1:
        nisa.register_load(count, counts)
    y = nl.load(x)
    for _ in nl.dynamic_range(count):
        nisa.tensor_copy(dst=y, src=y)
    out = C.hbm((2, *x.shape), x.dtype)
    nl.store(out[nl.program_id(0)], y)
    return out


def test_what_one_core_stores_to_an_argument_is_there_for_the_other():
    x, made = np.ones((2, 5), F32), world(2)
    dry = made.dry_run(rounds_of_an_argument, x, np.zeros((1, 1), np.int32))
    counts = np.full((1, 1), 3, np.int32)  # which the full run has anyway
    assert dry.instructions == made.dry_run(rounds_of_an_argument, x, counts).instructions


@nki.jit
def rounds_agreed_on(x, counts, group):
    """Ranks go round as often as the largest of their counts, found by an all_reduce."""
    mine, most = C.sbuf((1, 1), nl.int32), C.sbuf((1, 1), nl.int32)
    nisa.dma_copy(dst=mine, src=counts)
    nisa.tensor_scalar(dst=mine, data=mine, op0=nl.multiply, operand0=2)
    ncc.all_reduce([mine], [most], group, nl.maximum)
    other = C.sbuf((1, 1), nl.int32)
    if nl.num_programs(0) == 2:
        nisa.sendrecv(most, other, 1 - nl.program_id(0), 1 - nl.program_id(0), 0)
    else:
        nisa.tensor_copy(dst=other, src=most)
    rounds = nisa.register_alloc(other)
    src, dst = C.staged(x, "hbm"), C.hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(rounds):
        for _ in nl.dynamic_range(2):
            ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@pytest.mark.parametrize("lnc", [1, 2])
def test_loops_depend_on_what_was_computed_and_received(lnc):
    counts = nki.per_rank([np.array([[n]], np.int32) for n in (1, 0, 3, 2)])
    dry = same_as_full(world(4, lnc), rounds_agreed_on, np.ones((4, 6), F32), counts, GROUP)
    assert dry.exchanges["ncc.all_reduce"] == 4 * lnc * (1 + 2 * 2 * 3)
    assert 0 < dry.computed < sum(dry.instructions)


def test_a_loop_that_needs_contents_names_its_line_and_the_argument():
    spec = nki.TensorSpec((1, 1), np.int32)
    with pytest.raises(errors.LaunchError, match="argument counts, and a TensorSpec has") as caught:
        world().dry_run(rounds_agreed_on, np.ones((4, 6), F32), spec, GROUP)
    lines = rounds_agreed_on.fn.__code__
    first = lines.co_firstlineno
    text = Path(__file__).read_text().splitlines()
    number = int(caught.value.location.rpartition(":")[2])
    assert number > first
    assert "nl.dynamic_range(rounds)" in text[number - 1]


@nki.jit
def rounds_agreed_on_next_to_data(x, counts, group):
    """A sum of data and a sum of counts, which differ in nothing but their type."""
    data, total = C.sbuf((1, 1), nl.float32), C.sbuf((1, 1), nl.float32)
    mine, rounds = C.sbuf((1, 1), nl.int32), C.sbuf((1, 1), nl.int32)
    nisa.dma_copy(dst=data, src=x)
    nisa.dma_copy(dst=mine, src=counts)
    ncc.all_reduce([data], [total], group, nl.add)
    ncc.all_reduce([mine], [rounds], group, nl.add)
    out = C.hbm(x.shape, x.dtype)
    nisa.dma_copy(dst=out, src=total)
    for _ in nl.dynamic_range(nisa.register_alloc(rounds)):
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


def test_a_message_of_another_type_is_another_message():
    counts = nki.per_rank([np.array([[n]], np.int32) for n in (1, 0, 3, 2)])
    dry = world().dry_run(rounds_agreed_on_next_to_data, nki.TensorSpec((1, 1), F32), counts, GROUP)
    assert dry.exchanges["nisa.core_barrier"] == 4 * 2 * 6


@nki.jit
def rounds_by_a_float(x):
    """Rounds are (x + 0.01) * 100: the small term is lost if the sum is kept in bfloat16."""
    tile, whole = C.sbuf(x.shape, x.dtype), C.sbuf(x.shape, nl.int32)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.01)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=100.0)
    nisa.tensor_copy(dst=whole, src=tile)
    out = C.hbm(x.shape, x.dtype)
    nisa.dma_copy(dst=out, src=tile)
    for _ in nl.dynamic_range(nisa.register_alloc(whole)):
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


@pytest.mark.parametrize(("precise", "rounds"), [("1", 400), ("0", 401)])
def test_low_precision_as_in_a_run(precise, rounds, monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", precise)
    x = np.array([[4.0]], ml_dtypes.bfloat16)
    dry = same_as_full(world(1, 1), rounds_by_a_float, x)
    assert dry.exchanges == {"nisa.core_barrier": rounds}


def test_while_loops_and_registers():
    group = ncc.ReplicaGroup([[0, 1, 2]])
    dry = same_as_full(world(3), K.count_then_meet, np.array([[7]], np.int32), group)
    assert set(dry.exchanges) == {"ncc.all_reduce"}


@nki.jit
def random_rounds(x, seed):
    """As many rounds as a random number says, of generators that the kernel seeds."""
    out = C.hbm(x.shape, x.dtype)
    seeds, drawn = [nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf) for _ in range(2)]
    nisa.dma_copy(dst=seeds, src=seed)
    nisa.set_rng_seed(seeds)
    nisa.rng(dst=drawn, engine=nisa.engine.vector)
    count = nl.ndarray((1, 1), nl.uint32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=count, data=drawn, op0=nl.bitwise_and, operand0=63)
    for _ in nl.dynamic_range(nisa.register_alloc(count)):
        nisa.dma_copy(dst=out, src=x)
    return out


@nki.jit
def sums_in_a_loop(x):
    """Whether the first round replaces or adds is only known at run time."""
    out, tile = C.hbm((6, 6), nl.float32), C.sbuf((5, 6), nl.float32)
    total = nl.ndarray((6, 6), nl.float32, buffer=nl.psum)
    nisa.dma_copy(dst=tile, src=x)
    for _ in nl.dynamic_range(3):
        nisa.nc_matmul(total, tile, tile)
    result = C.sbuf((6, 6), nl.float32)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_sums_whose_beginning_is_found_at_run_time():
    made = world(1, 1)
    x = np.ones((5, 6), F32)
    (program,) = made.compile(sums_in_a_loop, x).programs
    assert program.facts["runtime_psum"]
    same_as_full(made, sums_in_a_loop, x)


@nki.jit
def rounds_by_a_sum(x):
    """Rounds are what two products add up to, which depends on the order: 1e8 + 3 is 1e8."""
    total, ones = nl.ndarray((2, 6), nl.float32, buffer=nl.psum), C.sbuf((4, 6), nl.float32)
    nisa.memset(ones, 1)
    for rows in ((0, 1), (1, 5)):
        part = nl.load(x[rows[0] : rows[1]])
        nisa.nc_matmul(total, part, ones[0 : rows[1] - rows[0]])
    whole, out = C.sbuf((2, 6), nl.int32), C.hbm((2, 6), nl.int32)
    nisa.tensor_copy(dst=whole, src=total)
    for _ in nl.dynamic_range(nisa.register_alloc(whole[0:1, 0:1])):
        nisa.dma_copy(dst=out, src=whole)
    return out


def test_loops_depend_on_sums_as_in_a_run():
    x = np.repeat(np.array([[1e8], [3], [3], [-1e8], [1]], F32), 2, axis=1)
    same_as_full(world(1, 1), rounds_by_a_sum, x)


@pytest.mark.parametrize("seed", [5, 6])
def test_loops_depend_on_seeds(seed):
    same_as_full(world(1, 1), random_rounds, np.ones((4, 6), F32), np.array([[seed]], np.uint32))


def test_addresses_are_checked_if_they_are_known():
    made, table = world(1), nki.TensorSpec((5, 3), F32)
    with pytest.raises(errors.OutOfBoundsError, match=r"index 5 is outside \[0, 5\)") as caught:
        made.dry_run(H.index_too_large, table, np.array([[5]], np.int32))
    assert "kernels.py" in caught.value.location
    assert made.dry_run(H.index_too_large, table, np.array([[4]], np.int32)).unchecked == ()
    (line,) = made.dry_run(H.index_too_large, table, nki.TensorSpec((1, 1), np.int32)).unchecked
    assert line.rpartition(":")[0] == caught.value.location.rpartition(":")[0]


@nki.jit
def columns_chosen_at_run_time(x, column, group):
    """A collective on a part of a tensor whose place a register says."""
    src, dst = C.sbuf((4, 8), F32), C.sbuf((4, 2), F32)
    nisa.dma_copy(dst=src, src=x)
    tile = C.sbuf((1, 1), nl.int32)
    nisa.dma_copy(dst=tile, src=column)
    register = nisa.register_alloc(tile)
    ncc.all_reduce([src[:, nl.ds(register, 2)]], [dst], group, nl.add)
    return C.published(dst)


@pytest.mark.parametrize("host", ["full", "dry"])
def test_collectives_check_their_addresses(host):
    made, x = world(2, 1), np.ones((4, 8), F32)
    run = made.run if host == "full" else made.dry_run
    run(columns_chosen_at_run_time, x, np.array([[6]], np.int32), [[0, 1]])
    columns = nki.per_rank([np.array([[6]], np.int32), np.array([[7]], np.int32)])
    with pytest.raises(errors.OutOfBoundsError, match=r"index 7 is outside") as caught:
        run(columns_chosen_at_run_time, x, columns, [[0, 1]])
    assert caught.value.core == "rank 1 core 0"
    assert caught.value.instruction == "ncc.all_reduce"
    assert "test_dry_run.py" in caught.value.location


def test_an_unknown_address_of_a_collective_is_listed():
    spec = nki.TensorSpec((1, 1), np.int32)
    dry = world(2, 1).dry_run(
        columns_chosen_at_run_time, nki.TensorSpec((4, 8), F32), spec, [[0, 1]]
    )
    assert len(dry.unchecked) == 1
    assert dry.exchanges == {"ncc.all_reduce": 2}


def test_tensors_take_no_memory():
    """Four ranks with 2 GiB each; nothing of it is there."""
    spec = nki.TensorSpec((1 << 13, 1 << 16), F32)
    made = world(4, 1)
    tracemalloc.start()
    try:
        dry = made.dry_run(gather_and_add, spec, GROUP)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dry.exchanges == {"ncc.all_reduce": 4, "ncc.all_gather": 4}
    assert peak < 64 << 20


@nki.jit
def gather_and_add(x, group):
    src, total = C.hbm(x.shape, x.dtype), C.hbm(x.shape, x.dtype)
    nisa.dma_copy(dst=src, src=x)
    ncc.all_reduce([src], [total], group, nl.add)
    every = C.hbm((4 * x.shape[0], x.shape[1]), x.dtype)
    ncc.all_gather([total], [every], group, 0)
    return total


def test_no_cores_are_started_and_inputs_stay_as_they_are():
    made = nki.World(ranks=2, lnc=2, host="ray")
    x = np.ones((8, 5), F32)
    made.dry_run(H.add_in_place, x, x + 1)
    assert made._host is None
    np.testing.assert_array_equal(x, 1)
    made.close()
    with pytest.raises(errors.LaunchError, match="closed"):
        made.dry_run(H.add_in_place, x, x + 1)
