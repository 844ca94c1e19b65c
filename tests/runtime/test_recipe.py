"""What the first core leaves for others: the same segments, and steps that do the same."""

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
from nki_dist.program import Instruction, instructions
from nki_dist.runtime import group
from nki_dist.runtime.calls import copying
from nki_dist.runtime.group import CoreGroup
from nki_dist.runtime.linked import LinkedLoop, Rendezvous, Segment
from nki_dist.runtime.linker import Linker

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


def run(kernel: Any, *arguments: Any, lnc: int = 2) -> list[tuple[bytes, ...]]:
    """The bits of two launches, which have to be equal, by rank."""
    with nki.World(ranks=RANKS, host="inprocess", lnc=lnc) as world:
        found = [world.run(kernel, *arguments) for _ in range(2)]
    first, again = ([tuple(a.tobytes() for a in out) for out in outs] for outs in found)
    assert first == again
    return first


@pytest.fixture
def no_recipes(monkeypatch):
    """Call a function with each core linked by itself."""

    def call(function, *arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(CoreGroup, "_templates", lambda self, programs: [None] * len(programs))
            return function(*arguments, **options)

    return call


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16.storage])
def test_bits_are_those_of_cores_that_are_linked_alone(no_recipes, dtype, lnc):
    arguments = (*inputs(dtype), GROUP)
    found = run(mixed, *arguments, lnc=lnc)
    assert found == no_recipes(run, mixed, *arguments, lnc=lnc)
    assert len(set(found)) == RANKS


def shape_of(linked: list[Any]) -> list[Any]:
    """Instructions of segments, and which of a segment's steps are one."""
    found: list[Any] = []
    for item in linked:
        if isinstance(item, Segment):
            first = {id(step): n for n, step in reversed(list(enumerate(item.steps)))}
            assert len(item.steps) == len(item.instructions)
            steps = [first[id(step)] for step in item.steps]
            found.append(([i.ordinal for i in item.instructions], steps))
        elif isinstance(item, LinkedLoop):
            found.append((item.loop.location, shape_of(item.body)))
        else:
            assert isinstance(item, Rendezvous)
            found.append((item.instruction.ordinal, item.orders))
    return found


@pytest.fixture
def linked(monkeypatch):
    """What each core's program becomes, by core."""
    found: dict[int, Any] = {}

    class Watched(Linker):
        def link(self) -> Any:
            found[self.kit.slot.core] = made = super().link()
            return made

    monkeypatch.setattr(group, "Linker", Watched)
    return found


def test_segments_loops_and_common_steps_are_those_of_the_first_core(linked):
    run(mixed, *inputs(np.float32), GROUP)
    assert len(linked) == 2 * RANKS
    for core, made in linked.items():
        assert shape_of(made) == shape_of(linked[core % 2])


def test_each_core_links_what_is_no_call(monkeypatch):
    """Copies are linked once for all ranks, gathers for each."""
    asked: list[str] = []
    for spec in (nisa.dma_copy, nisa.tensor_copy, nisa.nc_n_gather):
        meaning = spec._meaning
        monkeypatch.setattr(
            spec,
            "_meaning",
            lambda i, kit, meaning=meaning: asked.append(i.opcode) or meaning(i, kit),
        )
    run(mixed, *inputs(np.float32), GROUP, lnc=1)
    with nki.World(ranks=RANKS, host="inprocess", lnc=1) as world:
        (program,) = world.compile(mixed, *inputs(np.float32), GROUP).programs
    copies = sum(i.opcode == "dma_copy" for i in instructions(program.body))
    times = 2  # the launch is carried out again, to see what came from memory that nobody wrote
    assert asked.count("nc_n_gather") == times * RANKS
    assert asked.count("dma_copy") <= times * copies


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
def test_nobody_hears_of_floats_that_overflow(how, linked):
    xs = nki.per_rank([np.full((ROWS, COLUMNS), 3e38, np.float32) for _ in range(RANKS)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = run(overflowing, xs, how, lnc=1)
    assert found == [(np.full((ROWS, COLUMNS), np.inf, np.float32).tobytes(),)] * RANKS
    segments = [item for item in linked[1] if isinstance(item, Segment)]
    assert [s.moves for s in segments if s.steps] == [True, False, True]


def test_copies_that_convert_refuse_what_they_refused():
    numbers, places = np.array([1.5, 2.5], np.float32), np.zeros(2, np.int32)
    with pytest.raises(TypeError, match="same_kind"):
        copying(places, numbers)()
    copying(places, np.array([4, 5], np.int32))()
    assert places.tolist() == [4, 5]


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


def test_an_error_while_it_runs_is_that_of_its_core(no_recipes):
    xs = inputs(np.float32)[0]
    indices = nki.per_rank(
        lambda rank: np.full((ROWS, COLUMNS), 99 if rank == 2 else rank, np.uint32)
    )
    told = []
    for how in (lambda f, *a, **o: f(*a, **o), no_recipes):
        with pytest.raises(OutOfBoundsError) as caught:
            how(run, gathered, xs, indices, lnc=1)
        told.append((caught.value.core, caught.value.location, caught.value.message))
    assert told[0] == told[1]
    assert told[0][0] == "rank 2 core 0"


def test_an_error_of_linking_is_that_of_its_core(monkeypatch, no_recipes):
    """What another rank can't do, it says when it is linked."""
    meaning = nisa.nc_n_gather._meaning

    def fails(i: Instruction, kit: Any) -> Any:
        if kit.slot.rank == 3:
            raise NkiError("not on this rank")
        return meaning(i, kit)

    monkeypatch.setattr(nisa.nc_n_gather, "_meaning", fails)
    told = []
    for how in (lambda f, *a, **o: f(*a, **o), no_recipes):
        with pytest.raises(NkiError, match="not on this rank") as caught:
            how(run, mixed, *inputs(np.float32), GROUP, lnc=1)
        told.append((caught.value.core, caught.value.location, caught.value.instruction))
    assert told[0] == told[1]
    assert told[0][0] == "rank 3 core 0"
    assert told[0][2] == "nisa.nc_n_gather"
