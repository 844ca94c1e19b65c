"""Cores that run one program: it is linked once, bound for each, and errors are each core's own."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.collectives import execute
from nki_dist.collectives.operations import Member
from nki_dist.errors import NkiError, OutOfBoundsError
from nki_dist.linking.linked import Segment
from nki_dist.program import Instruction, instructions
from nki_dist.runtime.group import placed_program

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

RANKS, ROWS, COLUMNS = 4, 6, 10
GROUP = ncc.ReplicaGroup([[2, 0, 3], [1]])


@nki.jit
def mixed(x, w, places, group):
    """Everything that a recipe treats differently: births, loops, exchanges that have the same
    arguments and others, products of several matmuls, gathers, run-time addresses, stores that the
    other core can see."""
    core, cores = nl.program_id(0), nl.num_programs(0)
    rows, columns = x.shape
    out = nl.ndarray((cores, 6, rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    both = nl.ndarray((cores, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    c = nl.ndarray((rows, 2 * columns), dtype=x.dtype, buffer=nl.sbuf)
    for _ in range(2):
        ncc.collective_permute_implicit([[a]], [[b]], group)
        ncc.collective_permute_implicit([[b]], [[c[:, :columns]]], group)
        ncc.collective_permute_implicit([[b]], [[c[:, columns:]]], group)
        nisa.tensor_tensor(dst=a, data1=c[:, :columns], data2=c[:, columns:], op=nl.subtract)
        ncc.collective_permute_implicit([[b]], [[c[:, columns:]]], group)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
        nisa.tensor_tensor(dst=b, data1=a, data2=c[:, columns:], op=nl.subtract)
        ncc.collective_permute_implicit([[b]], [[a]], group)
    nl.store(out[core, 0], a)
    place = nisa.register_alloc(nl.load(places))
    for _ in nl.dynamic_range(place):
        fresh = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=fresh[:, 0:columns], src=x)
        nisa.tensor_tensor(dst=a, data1=a, data2=fresh, op=nl.add)
        ncc.collective_permute_implicit([[a]], [[b]], group)
    nl.store(out[core, 1], b)
    column = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=column, src=x.ap([[columns, rows], [1, 1]], scalar_offset=place, indirect_dim=1)
    )
    nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=column)
    nl.store(out[core, 2], b)
    psum = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)
    for n in range(3):
        nisa.nc_matmul(dst=psum, stationary=nl.load(w[n]), moving=b)
    nisa.tensor_copy(dst=a, src=psum)
    nl.store(out[core, 3], a)
    indices = nl.ndarray((rows, columns), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.iota(indices, [[0, columns]], offset=1, channel_multiplier=1)
    nisa.nc_n_gather(dst=b, data=a, indices=indices)
    nl.store(out[core, 4], b)
    part = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=part[:, nl.ds(place, 2)], src=b[:, 0:2])
    nl.store(out[core, 5], part)
    nl.store(both[core], x[core])
    if cores > 1:
        nisa.core_barrier(both, (0, 1))
    seen = nl.ndarray((1, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=seen, src=both[cores - 1 - core].reshape((1, columns)))
    return out, both


def inputs(dtype: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(4)
    xs = [rng.integers(-9, 9, (ROWS, COLUMNS)).astype(dtype) for _ in range(RANKS)]
    w = rng.integers(-3, 3, (3, ROWS, ROWS)).astype(dtype)
    # Rounds of a loop with an exchange: the same for all.
    return nki.per_rank(xs), w, np.array([[3]], np.int32)


def run(kernel: Any, *arguments: Any, lnc: int = 2, **options: Any) -> list[tuple[bytes, ...]]:
    """The bits of two launches, which have to be equal, by rank."""
    options = {"host": "inprocess", **options}
    with nki.World(ranks=RANKS, lnc=lnc, **options) as world:
        found = [world.run(kernel, *arguments) for _ in range(2)]
    first, again = ([tuple(a.tobytes() for a in out) for out in outs] for outs in found)
    assert first == again
    return first


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16.storage])
def test_bits_are_those_of_instructions_one_by_one(dtype, lnc, monkeypatch):
    arguments = (*inputs(dtype), GROUP)
    found = run(mixed, *arguments, lnc=lnc)
    assert len(set(found)) == RANKS
    monkeypatch.setenv("NKI_DIST_LINK_WITHOUT", "all")
    assert found == run(mixed, *arguments, lnc=lnc)
    assert found == run(mixed, *arguments, lnc=lnc, host="debug")


def test_exchanges_with_equal_arguments_have_one_plan(monkeypatch):
    planned: list[int] = []

    class Counted(Member):
        def __init__(self, i: Instruction, kit: Any, group: Any, rank: int) -> None:
            super().__init__(i, kit, group, rank)
            planned.append(kit.slot.core)

    monkeypatch.setattr(execute, "Member", Counted)
    with nki.World(ranks=RANKS, host="inprocess", lnc=1) as world:
        (program,) = world.compile(mixed, *inputs(np.float32), GROUP).programs
        exchanges = [i for i in instructions(program.body) if "permute" in i.opcode]
        world.run(mixed, *inputs(np.float32), GROUP)
    assert len(exchanges) == 11
    times = len(planned) // RANKS // 4  # rounds that look for memory nobody wrote link again
    assert planned.count(1) == 4 * times  # a to b, b to both halves of c, b to a
    assert 1 <= times <= 2


@nki.jit
def overflowing(x, how):
    """Sums that are too large, between two waits, by a function of NumPy or several."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    ncc.collective_permute_implicit([[a]], [[b]], GROUP)
    if how == "one":
        nisa.tensor_tensor(dst=b, data1=a, data2=a, op=nl.multiply)
    else:
        nisa.dma_compute(b, [a, a], nl.add)
    ncc.collective_permute_implicit([[b]], [[a]], GROUP)
    nl.store(out, a)
    return (out,)


@pytest.mark.parametrize("how", ["one", "several"])
def test_nobody_hears_of_floats_that_overflow(how):
    xs = nki.per_rank([np.full((ROWS, COLUMNS), 3e38, np.float32) for _ in range(RANKS)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = run(overflowing, xs, how, lnc=1)
    assert found == [(np.full((ROWS, COLUMNS), np.inf, np.float32).tobytes(),)] * RANKS
    with nki.World(ranks=RANKS, host="inprocess", lnc=1) as world:
        (program,) = world.compile(overflowing, xs, how).programs
    segments = [item for item in placed_program(program).body if isinstance(item, Segment)]
    assert [s.moves for s in segments if s.steps] == [True, False, True]


@nki.jit
def gathered(x, indices):
    """Fails while it runs, in the second of two equal gathers."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    table, result = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    good = nl.ndarray(x.shape, dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(good, 1)
    nisa.nc_n_gather(dst=result, data=table, indices=good)
    nisa.nc_n_gather(dst=result, data=table, indices=nl.load(indices))
    nl.store(out, result)
    return out


def test_an_error_while_it_runs_is_that_of_its_core():
    xs = inputs(np.float32)[0]
    bad = np.full((ROWS, COLUMNS), 99, np.uint32)
    indices = [np.full((ROWS, COLUMNS), rank, np.uint32) for rank in range(RANKS)]
    indices[2] = bad
    with pytest.raises(OutOfBoundsError) as caught:
        run(gathered, xs, nki.per_rank(indices), lnc=1)
    with (
        nki.World(ranks=1, host="inprocess", lnc=1) as world,
        pytest.raises(OutOfBoundsError) as alone,
    ):
        world.run(gathered, xs.values[2], bad)
    assert caught.value.core == "rank 2 core 0"
    assert caught.value.message == alone.value.message
    assert caught.value.location == alone.value.location


def test_an_error_of_binding_is_that_of_its_core(monkeypatch):
    """What a rank can't exchange, it says when it is bound."""
    spec = ncc.collective_permute_implicit
    exchange = spec.link_exchange

    def fails(i: Instruction, kit: Any) -> Any:
        if kit.slot.rank == 3:
            raise NkiError("not on this rank")
        return exchange(i, kit)

    monkeypatch.setattr(spec, "link_exchange", fails)
    with pytest.raises(NkiError, match="not on this rank") as caught:
        run(mixed, *inputs(np.float32), GROUP, lnc=1)
    assert caught.value.core == "rank 3 core 0"
    assert caught.value.instruction == "ncc.collective_permute_implicit"


def test_an_error_of_linking_is_that_of_the_first_core(monkeypatch):
    def fails(i: Instruction, kit: Any) -> Any:
        raise NkiError("not here")

    monkeypatch.setattr(nisa.nc_n_gather, "lower", fails)
    with pytest.raises(NkiError, match="not here") as caught:
        run(mixed, *inputs(np.float32), GROUP, lnc=1)
    assert caught.value.core == "rank 0 core 0"
    assert caught.value.instruction == "nisa.nc_n_gather"
    assert caught.value.location is not None
