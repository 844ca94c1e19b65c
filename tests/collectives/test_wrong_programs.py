"""Ranks that disagree, are missing or name what isn't there: error type, both call sites, line."""

from __future__ import annotations

import re

import pytest

import nki_dist as nki
from nki_dist.errors import NkiError, RaceError
from tests.collectives import wrong, wrong_cores
from tests.collectives.worlds import run
from tests.collectives.wrong_table import PROGRAMS, RANKS, Wrong

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

# On Ray these are always tried, the others when there is time.
ON_RAY = {
    "one_rank_leaves_out_a_round-1011",
    "then_another_operation-2122",
    "then_other_groups-1001",
    "only_the_sender_permutes-1011",
    "cores_call_different_collectives-1111",
    "no_barrier_before_a_load-1111",
    "one_rank_fails_while_others_wait-0172",
    "rank_without_group-1111",
}

each = pytest.mark.parametrize("program", PROGRAMS, ids=str)


def marked(error: NkiError, program: Wrong) -> bool:
    """Whether the error is at a marked line, and tells of all others."""
    lines = program.lines
    at = str(error.location).endswith(tuple(lines))
    return at and all(line in str(error) for line in lines) and bool(lines)


def test_every_program_is_in_the_table():
    kernels = {
        name
        for module in (wrong, wrong_cores)
        for name, kernel in vars(module).items()
        if isinstance(kernel, nki.Kernel) and kernel.fn.__module__ == module.__name__
    }
    assert kernels == {p.name for p in PROGRAMS}
    assert len(kernels) >= 30
    assert {str(p) for p in PROGRAMS} > ON_RAY


@each
def test_in_process(program):
    with pytest.raises(program.error, match=re.compile(program.message, re.DOTALL)) as caught:
        run(program.kernel, RANKS, *program.arguments, lnc=program.lnc)
    assert type(caught.value) is program.error
    assert marked(caught.value, program)


@each
def test_dry(program):
    """A dry run says the same, but for races, which need values: it lists their lines."""
    x, counts = program.arguments
    world = nki.World(ranks=RANKS, lnc=program.lnc, host="inprocess")
    arguments = (program.kernel, nki.TensorSpec(x.shape, x.dtype), counts)
    if program.error is RaceError:
        found = world.dry_run(*arguments).overlaps
        assert [line.rpartition("/")[2] for line in found] == program.lines
        return
    with pytest.raises(NkiError) as dry:
        world.dry_run(*arguments)
    with pytest.raises(NkiError) as full:
        world.run(program.kernel, x, counts)
    assert type(dry.value) is type(full.value)
    assert str(dry.value) == str(full.value)


def test_equal_counts_are_fine():
    """The same kernels without the mistake, so that it is the mistake that is reported."""
    names = {p.name for p in PROGRAMS if p.counts != (1, 1, 1, 1)}
    names -= {"barriers_of_uneven_loops", "chunks_beyond_the_source"}
    for program in {p.name: p for p in PROGRAMS if p.name in names}.values():
        x, counts = program.arguments
        counts[:] = 1 if program.name.endswith(("tensor", "wait")) else 2
        assert len(run(program.kernel, RANKS, x, counts, lnc=program.lnc)) == RANKS


@pytest.fixture(scope="module")
def actors():
    """Four ranks in four processes, by cores per rank; it goes on working after each failure."""
    made = {}

    def world(lnc):
        if lnc not in made:
            made[lnc] = nki.World(ranks=RANKS, lnc=lnc, host="ray", cores_per_actor=lnc)
        return made[lnc]

    yield world
    for each_world in made.values():
        each_world.close()


@pytest.mark.parametrize(
    "program",
    [pytest.param(p, marks=[] if str(p) in ON_RAY else [pytest.mark.slow]) for p in PROGRAMS],
    ids=str,
)
def test_on_ray(actors, program):
    world = actors(program.lnc if program.lnc_matters else 2)
    with pytest.raises(program.error, match=re.compile(program.message, re.DOTALL)) as caught:
        world.run(program.kernel, *program.arguments)
    assert type(caught.value) is program.error
    assert marked(caught.value, program)


def test_a_wait_is_described_without_addresses():
    """With two cores, core 1 of a rank tells core 0 which tensors it means; a deadlock needn't."""
    (program,) = [p for p in PROGRAMS if str(p) == "one_rank_leaves_out_a_round-1011"]
    with pytest.raises(NkiError, match="all_reduce") as caught:
        run(program.kernel, RANKS, *program.arguments, lnc=2)
    assert "ranks 0, 2, 3 core 0 wait in ncc.all_reduce (number" in str(caught.value)
    assert "shared" not in str(caught.value)
