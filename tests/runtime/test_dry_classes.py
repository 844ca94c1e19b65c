"""Dry runs by classes of ranks: to the last bit what they are when every rank is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.runtime import dry_classes, dry_report
from nki_dist.runtime.dry_classes import run_classes
from nki_dist.timing import make_profile
from nki_dist.timing.representatives import RepresentedTimeline
from tests.collectives import kernels as C
from tests.collectives.wrong_table import PROGRAMS

# As in the other tests of collectives, groups and pairs are plain lists.
pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

F32 = np.float32
X = nki.TensorSpec((8, 4), F32)


@nki.jit
def layer(x, tensor_parallel, data_parallel, pairs):
    """Work of both cores, sums over two kinds of groups, then on to the next stage."""
    src, dst = C.staged(x, "hbm"), C.hbm(x.shape, x.dtype)
    nisa.core_barrier(data=src, cores=(0, 1))
    ncc.all_reduce([src], [dst], tensor_parallel, nl.add)
    total = C.hbm(x.shape, x.dtype)
    ncc.all_reduce([dst], [total], data_parallel, nl.add)
    out = C.hbm(x.shape, x.dtype)
    tile = C.sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=total)
    nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.dma_copy(dst=out, src=tile)
    ncc.collective_permute([total], [out], pairs)
    return out


@nki.jit
def exchanged_halves(x, group):
    """The cores of a rank exchange tiles between two collectives in SBUF."""
    mine, theirs = C.sbuf(x.shape, x.dtype), C.sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=mine, src=x)
    for _ in nl.dynamic_range(3):
        ncc.all_reduce([mine], [theirs], group, nl.add)
        other = 1 - nl.program_id(0)
        if nl.num_programs(0) == 2:
            nisa.sendrecv(theirs, mine, other, other, 0)
    return C.published(mine)


@nki.jit
def rank_many_rounds(x, group):
    """How often a rank computes depends on it; what it exchanges doesn't."""
    src, dst = C.staged(x, "hbm"), C.hbm(x.shape, x.dtype)
    tile = C.sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    for _ in nl.dynamic_range(ncc.rank_id()):
        nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.dma_copy(dst=src, src=tile)
    ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@nki.jit
def row_of_its_rank(x, table, group):
    """The rank's row of a table, which decides nothing; then a sum of all."""
    tile, total = C.sbuf((1, table.shape[1]), x.dtype), C.sbuf((1, table.shape[1]), x.dtype)
    nisa.dma_copy(dst=tile, src=table.select(0, ncc.rank_id()).reshape((1, table.shape[1])))
    ncc.all_reduce([tile], [total], group, nl.add)
    return C.published(total)


@nki.jit
def counted_rounds(x, counts, group):
    tile = C.sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    count = C.sbuf((1, 1), nl.int32)
    nisa.dma_copy(dst=count, src=counts)
    for _ in nl.dynamic_range(nisa.register_alloc(count)):
        nisa.activation(dst=tile, op=nl.exp, data=tile)
    other = C.sbuf(x.shape, x.dtype)
    ncc.all_reduce([tile], [other], group, nl.add)
    return C.published(other)


class Case(NamedTuple):
    kernel: Any
    args: Callable[[int], tuple[Any, ...]]
    lnc: int = 2
    folds: bool = True  # there are classes


def rows(ranks: int, width: int = 4) -> list[list[int]]:
    return np.arange(ranks).reshape(-1, width).tolist()


def columns(ranks: int, width: int = 4) -> list[list[int]]:
    return np.arange(ranks).reshape(-1, width).T.tolist()


def outer(ranks: int) -> list[list[int]]:
    """Of four ranks the first and the last, the others alone."""
    return [group for a, b, c, d in rows(ranks) for group in ([a, d], [b], [c])]


def everybody(ranks: int) -> list[list[int]]:
    return [list(range(ranks))]


def uneven(ranks: int) -> list[list[int]]:
    """Groups of 3 and of the rest, shuffled."""
    order = np.random.default_rng(ranks).permutation(ranks).tolist()
    return [order[:3], order[3:]]


def next_stage(ranks: int, width: int = 4) -> list[tuple[int, int]]:
    return [(r, r + width) for r in range(ranks - width)]


def counts(ranks: int) -> nki.PerRank:
    two = [np.array([[n]], np.int32) for n in (2, 5)]
    return nki.per_rank([two[r % 4 == 3] for r in range(ranks)])


def table(ranks: int) -> nki.TensorSpec:
    return nki.TensorSpec((ranks, 6), F32)


CASES = {
    "layer": Case(layer, lambda n: (X, rows(n), columns(n), next_stage(n))),
    "layer, one core": Case(layer, lambda n: (X, rows(n), columns(n), next_stage(n)), 1),
    "first or second": Case(layer, lambda n: (X, rows(n, 2), outer(n), next_stage(n))),
    "all_reduce": Case(C.all_reduce, lambda n: (X, everybody(n), nl.add)),
    "all_reduce in SBUF": Case(C.all_reduce, lambda n: (X, columns(n), nl.add, "sbuf")),
    "uneven groups": Case(C.all_reduce, lambda n: (X, uneven(n), nl.add)),
    "reduce_scatter": Case(C.reduce_scatter, lambda n: (X, rows(n), nl.add, 4)),
    "all_gather": Case(C.all_gather, lambda n: (X, columns(n, 2), n // 2)),
    "all_to_all": Case(C.all_to_all, lambda n: (X, rows(n))),
    "permute": Case(C.permute, lambda n: (X, [(0, 3), (3, 1), (2, 2)])),
    "ring": Case(C.ring, lambda n: (X, rows(n), 4, 2)),
    "ring_reduce": Case(C.ring_reduce, lambda n: (X, X, rows(n), nl.add)),
    "ring in a loop": Case(C.ring_in_dynamic_loop, lambda n: (X, everybody(n), n), 1),
    "coalesced": Case(C.coalesced, lambda n: (X, X, rows(n), 4)),
    "private": Case(C.private, lambda n: (X, rows(n), 4)),
    "sendrecv": Case(exchanged_halves, lambda n: (X, rows(n))),
    "rank in a loop": Case(rank_many_rounds, lambda n: (X, rows(n)), folds=False),
    "rank in an address": Case(row_of_its_rank, lambda n: (X, table(n), rows(n))),
    "counts in a loop": Case(counted_rounds, lambda n: (X, counts(n), rows(n))),
}
SIZES = [(name, n) for n in (8, 64) for name in CASES]
SIZES += [pytest.param(name, 256, marks=pytest.mark.slow) for name in ("layer", "all_gather")]


def launched(case: Case, ranks: int) -> Iterator[Any]:
    """Reports and profiles: with classes, then without."""
    world = nki.World.trn2_ultraserver(ranks=ranks, lnc=case.lnc)
    args = case.args(ranks)
    found: list[Any] = []
    run = dry_report.run_dry
    for in_classes in (True, False):

        def kept(*a: Any, in_classes: bool = in_classes) -> Any:
            found[:] = [run(*a, in_classes=in_classes)]
            return found[0]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("nki_dist.launcher.world.run_dry", kept)
            yield world.dry_run(case.kernel, *args, profile=True), found[0][1]


@pytest.mark.parametrize(("name", "ranks"), SIZES)
def test_the_same_as_without_classes(name: str, ranks: int) -> None:
    case = CASES[name]
    (one, reports), (every, all_reports) = launched(case, ranks)
    assert one == every
    for a, b in zip(reports, all_reports, strict=True):
        assert (a.core, a.trips, a.messages) == (b.core, b.trips, b.messages)
    timeline = one.profile.timeline
    if ranks > 8:
        assert isinstance(timeline, RepresentedTimeline) == case.folds
    whole = timeline.launch.replayed()
    assert make_profile(whole, one.profile.kernel).to_dict() == one.profile.to_dict()
    assert one.profile.to_dict() == every.profile.to_dict()
    for number, core in enumerate(whole.cores):
        mine = timeline.core(number)
        for what in ("seat", "start", "end", "done", "cause", "held", "busy_end", "reason"):
            assert getattr(mine, what) == getattr(core, what), (number, what)
    assert timeline.cores[-1].end == whole.cores[-1].end
    assert timeline.deliveries == whole.deliveries


def ran_in_classes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes, for each dry run, whether classes were enough."""
    found: list[bool] = []

    def noted(*args: Any) -> Any:
        found.append(True)  # also where they end in an error
        reports = run_classes(*args)
        found[-1] = reports is not None
        return reports

    monkeypatch.setattr(dry_report, "run_classes", noted)
    return found


@pytest.mark.parametrize("name", CASES)
def test_which_have_classes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, case = ran_in_classes(monkeypatch), CASES[name]
    nki.World.trn2_ultraserver(ranks=8, lnc=case.lnc).dry_run(case.kernel, *case.args(8))
    assert found == [True]


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_mistakes_are_those_of_all_ranks(program: Any) -> None:
    x, counts = program.arguments
    world = nki.World(ranks=4, lnc=program.lnc, host="inprocess")
    arguments = (program.kernel, nki.TensorSpec(x.shape, x.dtype), counts)
    if program.error is errors.RaceError:
        return
    told = []
    for in_classes in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not in_classes:
                patch.setattr(dry_report, "run_classes", lambda *_: None)
            with pytest.raises(errors.NkiError) as caught:
                world.dry_run(*arguments)
        told.append(caught.value.to_dict())
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("layer", 1),
        ("ring", 2),  # with the first and with the last rank in its addresses
        ("rank in an address", 2),
        ("permute", 2),
        ("rank in a loop", 64),
    ],
)
def test_how_many_ranks_are_run(name: str, runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Counted(dry_classes.DryCores):
        def __init__(self, slots: Any, *args: Any) -> None:
            made.append([slot.rank for slot in slots])
            super().__init__(slots, *args)

    monkeypatch.setattr(dry_classes, "DryCores", Counted)
    world = nki.World.trn2_ultraserver(ranks=64)
    world.dry_run(CASES[name].kernel, *CASES[name].args(64))
    assert len(made) == runs
    assert all(len(ranks) == 2 for ranks in made)


def test_a_rank_beyond_a_table_is_the_first_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ran_in_classes(monkeypatch)
    world = nki.World.trn2_ultraserver(ranks=64)
    with pytest.raises(errors.OutOfBoundsError, match=r"index 60 is outside \[0, 60\)") as caught:
        world.dry_run(row_of_its_rank, X, table(60), rows(64))
    assert caught.value.core == "rank 60 core 0"
    assert found == [True]


def test_ranks_that_differ_in_what_they_exchange_are_told_by_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ran_in_classes(monkeypatch)
    (program,) = [p for p in PROGRAMS if str(p) == "one_rank_leaves_out_a_round-1011"]
    x, counts = program.arguments
    with pytest.raises(errors.DeadlockError, match="rank 1 core 0 has finished"):
        nki.World(ranks=4, lnc=2).dry_run(program.kernel, x, counts)
    assert found == [True]


def test_an_algorithm_that_does_not_fit_names_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_DIST_COLLECTIVE_ALGORITHM", "rdh")
    world = nki.World.trn2_ultraserver(ranks=128)
    groups = [list(range(64)), list(range(64, 67)), list(range(67, 128))]
    with pytest.raises(errors.LaunchError, match=r"group of 3 ranks, \[64, 65, 66\], can't use it"):
        world.dry_run(C.all_reduce, X, groups, nl.add)
