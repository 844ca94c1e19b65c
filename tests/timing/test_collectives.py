"""Collectives in simulated time: costs by hand, documented crossovers, rendezvous in a replay."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench import collectives_time
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import choose, named
from nki_dist.collectives.cost import all_to_all_ns, cost_ns, stages
from nki_dist.collectives.members import Members
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.collectives.timing import collective_rules
from nki_dist.errors import LaunchError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.collectives import COLLECTIVES
from nki_dist.timing.exchange import EXCHANGES
from nki_dist.topology.topology import Topology, system
from tests.collectives import kernels as K
from tests.timing.build import events

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning")

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
START, HOP = 3700, 1940
TRN2 = system("trn2")


def question(nbytes: int, topology: Topology = TRN2, group=None, opcode="all_reduce") -> Question:
    node = topology.ranks_per_instance * topology.arch.instances_per_ultraserver
    ranks = tuple(range(topology.ranks)) if group is None else tuple(group)
    return Question(opcode, nbytes, ranks, RankLayout(topology.ranks_per_chip, node), topology.arch)


def cost(nbytes: int, forced: str = "", topology: Topology = TRN2, **which) -> float:
    q = question(nbytes, topology, **which)
    return cost_ns(Members(q, topology), choose(q, forced))


def sizes(step: int = 1) -> list[int]:
    """1 KiB to 1 GiB; `step` points per doubling, multiples of 4."""
    exponents = np.linspace(10, 30, 20 * step + 1)
    return sorted({int(2.0**e) // 4 * 4 for e in exponents})


# ---- the curve of 64 ranks ----------------------------------------------------------------------


def test_time_never_falls_with_size_whichever_algorithm_is_chosen() -> None:
    """It stays where a second to a fourth channel takes what is added."""
    points = sorted({*sizes(8), MIB - 4, MIB, MIB + 4, 56 * MIB - 4, 56 * MIB, 56 * MIB + 4})
    times = [cost(n) for n in points]
    assert all(a <= b for a, b in pairwise(times))
    assert all(cost(n) < cost(5 * n) for n in points)


@pytest.mark.parametrize("name", [a.name for a in ALGORITHMS])
def test_every_algorithm_alone_grows_with_size(name: str) -> None:
    times = [cost(n, name) for n in sizes()]
    assert all(a < b for a, b in pairwise(times))


@pytest.mark.parametrize(
    ("cheaper", "dearer", "low", "high"),
    [
        ("single_step_mesh", "mesh", 1 * KIB, 3 * KIB),
        ("mesh", "rdh", 8 * KIB, MIB - 4),
        ("rdh", "kangaring", MIB + MIB // 64, 56 * MIB),
        ("kangaring", "rdh", 57 * MIB, GIB),
        ("kangaring", "ring", 1 * KIB, GIB),
        ("rdh", "mesh", MIB + MIB // 64, GIB),
    ],
)
def test_curves_cross_where_the_documented_ranges_meet(
    cheaper: str, dearer: str, low: int, high: int
) -> None:
    for n in [low, *(s for s in sizes() if low < s < high), high]:
        assert cost(n, cheaper) < cost(n, dearer), n


def test_the_choice_is_the_cheapest_but_for_single_step() -> None:
    for n in sizes(2):
        chosen = choose(question(n)).name
        if 3 * KIB < n < 8 * KIB:  # the documented rule compares one hop with the extra bytes
            assert chosen == "mesh"
            continue
        others = ("ring", "mesh", "single_step_mesh", "rdh", "kangaring")
        best = min(others, key=lambda name: cost(n, name))
        assert cost(n) <= cost(n, best) * 1.01, (n, chosen, best)


# ---- costs by hand -----------------------------------------------------------------------------


def test_an_ultraserver_needs_no_efa() -> None:
    whole = system("trn2-ultraserver")
    q = question(8 * MIB, whole)
    assert max(s.latency for s in stages(Members(q, whole), choose(q))) < 15000
    assert cost(8 * MIB, topology=whole) < cost(8 * MIB, topology=system("trn2", ranks=256))


@pytest.mark.parametrize("name", ["trn1", "inf2", "trn2", "trn2-ultraserver", "trn3", "trn3-gen2"])
@pytest.mark.parametrize("opcode", ["all_reduce", "all_gather", "reduce_scatter"])
def test_every_system_and_algorithm_has_a_price(name: str, opcode: str) -> None:
    topology = system(name)
    for forced in ("", *(a.name for a in ALGORITHMS)):
        q = question(MIB, topology, opcode=opcode)
        try:
            algorithm = choose(q, forced)
        except LaunchError:
            assert named(forced).needs  # inf2 and trn3-gen2 aren't powers of two
            continue
        assert np.isfinite(cost_ns(Members(q, topology), algorithm))
    assert np.isfinite(
        all_to_all_ns(Members(question(MIB, topology, opcode="all_to_all"), topology))
    )


def test_a_group_of_one_only_starts() -> None:
    assert cost(MIB, group=(3,)) == START


# ---- in a profile -------------------------------------------------------------------------------


def test_every_collective_has_a_rule() -> None:
    rules = {*EXCHANGES, *collective_rules(TRN2)}
    assert {name for name, spec in INSTRUCTIONS.items() if spec.synchronises} == rules
    assert {n for n, s in COLLECTIVES.items() if s.synchronises} == set(collective_rules(TRN2))


def hbm(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


@nki.jit
def reduced(x, groups, late):
    """An all-reduce; the ranks' copies take longer the more `late` rounds there are."""
    out, mid = hbm(x), hbm(x)
    nl.store(mid, nl.load(x))
    for _ in range(late):
        nl.store(mid, nl.load(mid))
    ncc.all_reduce(srcs=[mid], dsts=[out], op=nl.add, replica_group=ncc.ReplicaGroup(groups))
    return out


def profiled(kernel, ranks: int, *args, lnc: int = 1):
    x = [np.full((64, 96), r + 1, np.float32) for r in range(ranks)]
    with nki.World(ranks=ranks, lnc=lnc, host="inprocess", platform="trn2") as world:
        return world.run(kernel, nki.per_rank(x), *args, profile=True)


def collectives(run, opcode: str = "all_reduce") -> list:
    return [e for e in events(run.profile.timeline) if e.instruction.opcode == opcode]


@pytest.mark.parametrize("lnc", [1, 2])
def test_all_members_are_over_at_once_when_the_last_has_come(lnc: int) -> None:
    run = profiled(reduced, 3, ((0, 1, 2),), 0, lnc=lnc)
    assert run.outputs[2][5, 7] == 6
    events = collectives(run)
    assert len(events) == 3 * lnc
    assert len({e.end for e in events}) == 1
    nbytes = 64 * 96 * 4
    topology = Topology(run.profile.timeline.arch, 3, lnc)
    took = events[0].end - max(e.start for e in events)
    assert took == pytest.approx(cost(nbytes, topology=topology))


def test_groups_do_not_wait_for_each_other() -> None:
    run = profiled(reduced, 4, ((0, 2), (3, 1)), 1)
    ends = [e.end for e in collectives(run)]
    assert ends[0] == ends[2]
    assert ends[1] == ends[3]
    assert np.all(run.outputs[1] == 6)


def test_profiles_of_collectives_say_what_they_rest_on(tmp_path: Path) -> None:
    profile = profiled(reduced, 2, ((0, 1),), 0).profile
    assert "chip_fabric_gbps" in profile.assumed_parameters
    assert profile.critical["cc"] > 5
    assert sum(profile.critical.values()) == pytest.approx(profile.total_us)
    assert any(line.opcode == "all_reduce" for line in profile.lines)
    profile.write_trace(tmp_path / "trace.json")
    names = {
        e.get("name", "") for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    }
    assert any("all_reduce" in n for n in names)


@nki.jit
def ring_of_three(x, reduce):
    """Two steps of a ring, then a permutation that leaves rank 1 out."""
    here, there, out = hbm(x), hbm(x), hbm(x)
    nl.store(here, nl.load(x))
    nl.store(out, nl.load(x))
    group = ncc.ReplicaGroup([[0, 1, 2]])
    ncc.collective_permute_implicit(
        srcs_by_channel=[[here]], dsts_by_channel=[[there]], replica_group=group
    )
    ncc.collective_permute(srcs=[there], dsts=[out], source_target_pairs=[(0, 2), (2, 0)])
    return out


def test_rings_and_permutations_have_times() -> None:
    run = profiled(ring_of_three, 3, 0)
    assert [int(o[0, 0]) for o in run.outputs] == [2, 2, 3]
    steps = collectives(run, "collective_permute_implicit")
    assert all(e.end - e.start >= START + HOP for e in steps)
    zero, one, two = collectives(run, "collective_permute")
    assert one.end == one.start
    assert zero.end == pytest.approx(two.end, rel=0.01)


def test_a_step_of_a_ring_that_reduces_reads_two_tensors_and_writes_one_twice() -> None:
    """One rank to the next on its chip: a channel reads and writes 75 GB/s in all."""

    def took(kernel, opcode: str, *tensors) -> float:
        per = [nki.per_rank([np.full((64, 96), 1, np.float32)] * 2) for _ in tensors]
        group = ncc.ReplicaGroup([[0, 1]])
        rest = (nl.add,) if kernel is K.ring_reduce else (2, 1)
        with nki.World(ranks=2, lnc=1, host="inprocess", platform="trn2") as world:
            event, *_ = collectives(world.run(kernel, *per, group, *rest, profile=True), opcode)
        return event.end - event.start

    nbytes = 64 * 96 * 4
    step = took(K.ring_reduce, "collective_permute_implicit_reduce", "srcs0", "srcs1")
    assert step == pytest.approx(START + HOP + 4 * nbytes / 75)
    step = took(K.ring, "collective_permute_implicit", "srcs")
    assert step == pytest.approx(START + HOP + 2 * nbytes / 75)


@nki.jit
def in_sbuf(x):
    """Each core's own tile."""
    out = hbm(x)
    tile = nl.load(x)
    total = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.memset(total, 0.0)
    ncc.all_reduce(srcs=[tile], dsts=[total], op=nl.add, replica_group=ncc.ReplicaGroup([[0, 1]]))
    nl.store(out, total)
    return out


def test_tensors_of_a_core_meet_those_of_the_same_core() -> None:
    run = profiled(in_sbuf, 2, lnc=2)
    events = collectives(run)
    assert events[0].end == events[2].end
    assert events[1].end == events[3].end
    assert np.all(run.outputs[0] == 3)


def test_tensors_of_a_core_have_the_channels_of_that_core() -> None:
    x = nki.per_rank([np.full((128, 512), 1, np.float32)] * 2)
    with nki.World(ranks=2, lnc=2, host="inprocess", platform="trn2") as world:
        run = world.run(in_sbuf, x, profile=True)
    events = collectives(run)
    q = question(128 * 512 * 4, Topology(run.profile.timeline.arch, 2, 2))
    own, shared = (cost_ns(Members(q, TRN2, 2, cores), choose(q)) for cores in (1, 2))
    took = events[0].end - max(events[0].start, events[2].start)
    assert took == pytest.approx(own)
    assert own > shared


def test_the_forced_algorithm_is_the_one_that_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    free = profiled(reduced, 4, ((0, 1, 2, 3),), 0).profile.total_us
    monkeypatch.setenv("NKI_DIST_COLLECTIVE_ALGORITHM", "ring")
    forced = profiled(reduced, 4, ((0, 1, 2, 3),), 0).profile.total_us
    assert forced > free


# ---- the page -----------------------------------------------------------------------------------


def test_the_page_has_the_table_and_the_plot_of_this_version() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "collectives_time.md").read_text()
    assert collectives_time.table() in page, "run python -m bench.collectives_time"
    assert (docs / "collectives_time.svg").read_text() == collectives_time.plot()
