"""Stages of each algorithm, worked out by hand from the documented steps and traffic.

All figures are those of the platforms: trn2 has 4 ranks and 4 links of 128 GB/s per chip; a chip's
EFA interface gives 6.25 GB/s to each of them. A rank of two cores has four channels of 37.5 GB/s,
each of which reads and writes as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nki_dist.collectives.choose import choose
from nki_dist.collectives.cost import all_to_all_ns, move_ns, stages
from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.topology.topology import Topology, system

MIB = 1 << 20
TOUCH, LINK, FABRIC, EFA = 2 * 4 * 37.5, 128.0, 716.8, 6.25
ROUTED = 0.365  # share of a link for what passes through other chips
HOP, FAR, START = 1940.0, 15000.0, 3700.0
TWO = system("trn2", ranks=128)  # instances
TRN3 = system("trn3")


def ask(op: str, nbytes: int, group: Sequence[int], t: Topology = TWO) -> Question:
    node = t.ranks_per_instance * t.arch.instances_per_ultraserver
    return Question(op, nbytes, tuple(group), RankLayout(t.ranks_per_chip, node), t.arch)


def found(
    name: str, op: str, nbytes: int, group: Sequence[int], t: Topology = TWO, sharing: int = 1
) -> list[Stage]:
    q = ask(op, nbytes, group, t)
    return stages(Members(q, t, sharing), choose(q, name))


def same(got: Sequence[Stage], *wanted: tuple[float, float, float]) -> None:
    assert [(s.latency, s.links, s.copying) for s in got] == [pytest.approx(w) for w in wanted]


# ---- rings --------------------------------------------------------------------------------------


def test_a_ring_on_one_instance() -> None:
    """Eight ranks on two chips; everything but the own chunk crosses the link between them."""
    b, moved = 8 * MIB, 7 * MIB
    gather = (7 * HOP, moved / LINK, 2 * moved / TOUCH)
    scatter = (7 * HOP, moved / LINK, 3 * moved / TOUCH)
    same(found("ring", "all_gather", b, range(8)), gather)
    same(found("ring", "reduce_scatter", b, range(8)), scatter)
    same(found("ring", "all_reduce", b, range(8)), scatter, gather)


def test_a_ring_on_one_chip_needs_no_link() -> None:
    same(found("ring", "all_gather", 4 * MIB, range(4)), (3 * HOP, 0, 2 * 3 * MIB / TOUCH))


def test_a_ring_crosses_to_the_nearest_chip() -> None:
    """Chips 10, four links away, and 1; both links of this chip count."""
    (stage,) = found("ring", "all_gather", 3 * MIB, (0, 40, 4))
    assert stage.links == pytest.approx(2 * MIB / LINK)
    (stage,) = found("ring", "all_gather", 3 * MIB, (0, 64, 4))  # not the one on the other node
    assert stage.links == pytest.approx(max(2 * MIB / LINK, 2 * MIB / (EFA * 3 / 2)))


def test_a_ring_over_two_instances() -> None:
    """Four members, two ways of four between instances, a rank's EFA share for each of two."""
    (stage,) = found("ring", "all_gather", 4 * MIB, (0, 4, 64, 68))
    same([stage], ((2 * FAR + 2 * HOP) / 4 * 3, 3 * MIB / (2 * EFA), 2 * 3 * MIB / TOUCH))


def test_a_ring_of_one_does_nothing() -> None:
    for name in ("ring", "mesh", "single_step_mesh", "rdh", "hierarchical"):
        assert found(name, "all_reduce", MIB, (3,)) == []


def test_kangaring_has_half_the_steps_and_touches_for_two() -> None:
    b, moved = 8 * MIB, 7 * MIB
    # Four pairs: three reads or writes at each, four if it reduces, and one less in all.
    gather = (4 * HOP, moved / LINK, (4 * 3 - 1) * MIB / TOUCH)
    scatter = (4 * HOP, moved / LINK, (4 * 4 - 1) * MIB / TOUCH)
    same(found("kangaring", "all_gather", b, range(8)), gather)
    same(found("kangaring", "all_reduce", b, range(8)), scatter, gather)


# ---- mesh and RDH -------------------------------------------------------------------------------


def on_chip(b: float, reduces: bool) -> tuple[float, float, float]:
    """Four ranks: a quarter is the own one. Reducing reads all and writes a quarter."""
    return HOP, 0.75 * b / FABRIC, (1.25 if reduces else 1.5) * b / TOUCH


def test_mesh_is_a_step_on_the_chip_and_one_between_chips() -> None:
    """Two chips, one link between them; each rank sends a chunk to the other chip."""
    b, chunk = 8 * MIB, MIB
    gather = (HOP, 4 * chunk / LINK, 2 * chunk / TOUCH)
    scatter = (HOP, 4 * chunk / LINK, 3 * chunk / TOUCH)
    same(found("mesh", "all_gather", b, range(8)), on_chip(b, False), gather)
    same(found("mesh", "reduce_scatter", b, range(8)), on_chip(b, True), scatter)
    whole = found("mesh", "all_reduce", b, range(8))
    same(whole, on_chip(b, True), scatter, on_chip(b, False), gather)
    same(found("mesh", "all_gather", b, range(4)), on_chip(b, False))


def test_mesh_touches_what_comes_from_every_other_chip() -> None:
    """Chips 0, 1 and 2 in a row: the farthest is two links away, over the first of them."""
    across = found("mesh", "all_gather", 12 * MIB, range(12))[-1]
    crossed = (1 + 2 / ROUTED) * 4 * MIB / LINK  # one link to chip 1, two to chip 2
    same([across], (HOP + 200, crossed, 2 * 2 * MIB / TOUCH))


def test_mesh_between_instances_has_all_of_efa() -> None:
    same(found("mesh", "all_gather", 2 * MIB, (0, 64)), (FAR, MIB / EFA, 2 * MIB / TOUCH))
    both = found("mesh", "all_gather", 4 * MIB, (0, 1, 64, 65))[-1]
    assert both.links == pytest.approx(2 * MIB / (2 * EFA))  # two ranks' chunks and shares


def test_a_single_step_sends_whole_buffers_to_everybody() -> None:
    b = MIB
    same(found("single_step_mesh", "all_reduce", b, range(8)), (HOP, 16 * b / LINK, 16 * b / TOUCH))
    same(found("single_step_mesh", "all_reduce", b, range(4)), (HOP, 3 * b / FABRIC, 8 * b / TOUCH))
    same(found("single_step_mesh", "all_reduce", b, (0, 64)), (FAR, b / EFA, 4 * b / TOUCH))
    for op in ("all_gather", "reduce_scatter"):
        assert found("single_step_mesh", op, b, range(8)) == found("mesh", op, b, range(8))


def test_rdh_halves_and_doubles_between_chips() -> None:
    """Four chips in a ring, one rank's axis of two links each; then twice as much."""
    b, chunk = 16 * MIB, MIB
    steps = [(HOP, 4 * moved / (2 * LINK), 2 * moved / TOUCH) for moved in (chunk, 2 * chunk)]
    same(found("rdh", "all_gather", b, range(16)), on_chip(b, False), *steps)
    steps = [(HOP, 4 * moved / (2 * LINK), 3 * moved / TOUCH) for moved in (chunk, 2 * chunk)]
    same(found("rdh", "reduce_scatter", b, range(16)), on_chip(b, True), *steps)


def test_rdh_with_a_rank_per_chip_uses_one_axis_at_a_time() -> None:
    """Two of a chip's links lead to others of these four, but a rank's partner is one of them."""
    steps = [(HOP, moved / LINK, 2 * moved / TOUCH) for moved in (MIB, 2 * MIB)]
    same(found("rdh", "all_gather", 4 * MIB, (0, 4, 8, 12)), *steps)


def test_rdh_between_instances() -> None:
    same(found("rdh", "all_gather", 2 * MIB, (0, 64)), (FAR, MIB / EFA, 2 * MIB / TOUCH))


# ---- several at once ----------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "all_reduce"])
def test_hierarchical_reduces_within_first_and_gathers_within_last(op: str) -> None:
    """Chips 0 and 1 of both instances; between them goes an eighth of the buffer."""
    b, group = 16 * MIB, [*range(8), *range(64, 72)]
    q = ask(op, b, group)
    assert str(choose(q)) == "hierarchical(rdh, rdh)"
    wanted = found("rdh", op, b // 8, (0, 64))
    if op != "all_gather":
        wanted = found("rdh", "reduce_scatter", b, range(8)) + wanted
    if op != "reduce_scatter":
        wanted += found("rdh", "all_gather", b, range(8))
    assert stages(Members(q, TWO), choose(q)) == wanted


def test_groups_on_the_same_chips_share_links_but_not_efa() -> None:
    one, four = (found("mesh", "all_gather", MIB, (0, 4), sharing=n) for n in (1, 4))
    assert four[0].links == 4 * one[0].links
    one, four = (found("mesh", "all_gather", MIB, (0, 64), sharing=n) for n in (1, 4))
    assert four == one
    q = ask("all_gather", 4 * MIB, (0, 1, 4, 5, 64, 65, 68, 69))
    one, four = (stages(Members(q, TWO, n), choose(q, "hierarchical"))[-1] for n in (1, 4))
    assert four.links == 4 * one.links


def test_a_switch_counts_once_and_offers_all_ports() -> None:
    """trn3: four links of 32 GB/s from each chip to the switch of its server, whoever is asked."""
    assert TRN3.path(0, 8) == ("server", "server")
    (stage,) = found("mesh", "all_gather", 2 * MIB, (0, 8), TRN3)
    same([stage], (HOP + 200, MIB / (4 * 32), MIB / (4 * 53)))


def test_a_chip_has_as_many_ports_as_links_lead_to_the_group() -> None:
    """trn2 instances of an UltraServer: two links on the axis between them, one to each side."""
    whole = system("trn2-ultraserver")
    assert whole.path(0, 64) == ("z",)
    ports = [Members(ask("all_gather", 4, g, whole), whole).ports["z"] for g in ((0, 64), (0, 4))]
    assert ports == [1, 1]
    around = Members(ask("all_gather", 4, (0, 64, 128, 192), whole), whole)
    assert around.ports["z"] == 2
    few = replace(whole.arch, links_per_chip={"xy": 3, "z": 1})
    limited = replace(ask("all_gather", 4, range(0, 256, 4), whole), arch=few)
    assert Members(limited, whole).ports == {"xy": 3, "z": 1}


# ---- without an algorithm -----------------------------------------------------------------------


def test_all_to_all() -> None:
    def ns(group: Sequence[int], b: int) -> float:
        return all_to_all_ns(Members(ask("all_to_all", b, group), TWO))

    assert ns(range(8), 8 * MIB) == pytest.approx(START + HOP + 16 * MIB / LINK)
    assert ns(range(4), 4 * MIB) == pytest.approx(START + HOP + 2 * 4 * MIB / TOUCH)
    assert ns((0, 64), 2 * MIB) == pytest.approx(START + FAR + MIB / EFA)
    assert ns((3,), MIB) == pytest.approx(START + 2 * MIB / TOUCH)
    slow = TWO.arch.with_values("a test", chip_fabric_gbps=100.0)
    q = replace(ask("all_to_all", 4 * MIB, range(4)), arch=slow)
    assert all_to_all_ns(Members(q, TWO)) == pytest.approx(START + HOP + 3 * MIB / 100)


def test_moves() -> None:
    """A channel is slower than a link; on trn2 a rank has four, and a packet isn't shared."""

    def ns(to: int, channels: int = 1, nbytes: int = MIB, **values: float) -> float:
        q = ask("collective_permute", nbytes, (0, to))
        arch = TWO.arch.with_values("a test", **values) if values else TWO.arch
        return move_ns(Members(replace(q, arch=arch), TWO), channels, 2) - START

    assert ns(4) == ns(1) == ns(0) == pytest.approx(HOP + MIB / 37.5)
    assert ns(4, 2) == pytest.approx(HOP + MIB / 75)
    assert ns(8, 4) == ns(8, 7) == pytest.approx(HOP + 200 + MIB / 150)
    assert ns(4, 4, 3 << 16) == pytest.approx(HOP + (1 << 16) / 37.5)  # a packet each for three
    assert ns(4, 4, 1 << 15) == ns(4, 1, 1 << 15) == pytest.approx(HOP + (1 << 15) / 37.5)
    assert ns(64) == ns(64, 4) == pytest.approx(FAR + MIB / EFA)
    fast = {"collective_channel_gbps": 1e6, "hbm_stack_gbps": 1e6, "chip_fabric_gbps": 1e6}
    assert ns(4, 1, **fast) == pytest.approx(HOP + MIB / LINK)
    assert ns(4, 5, **fast) == pytest.approx(HOP + MIB / 512)  # a chip has four links
    assert ns(1, chip_fabric_gbps=10.0) == pytest.approx(HOP + MIB / 10)
    assert ns(1, hbm_stack_gbps=10.0) == pytest.approx(HOP + 2 * MIB / 10)


def test_a_rank_has_two_channels_for_each_of_its_cores() -> None:
    """Of four ranks on a chip or of eight: three quarters or seven eighths come from others."""
    one = system("trn2", ranks=128, lnc=1)
    for topology, members, channels in ((TWO, 4, 4), (one, 8, 2)):
        q = ask("all_gather", 8 * MIB, range(members), topology)
        (stage,) = stages(Members(q, topology), choose(q, "mesh"))
        moved = 8 * MIB * (members - 1) / members
        assert stage.copying == pytest.approx(moved / (channels * 37.5))


def test_cores_of_a_rank_that_take_part_alone_have_their_own_channels() -> None:
    """Two of four; a part of the group has as many."""
    q = ask("all_reduce", 64 * MIB, range(128))
    for name in ("rdh", "kangaring", "hierarchical"):
        whole, half = (stages(Members(q, TWO, cores=n), choose(q, name)) for n in (2, 1))
        assert whole == stages(Members(q, TWO), choose(q, name))
        assert [s.copying for s in half] == [pytest.approx(2 * s.copying) for s in whole]
    q = ask("all_to_all", 64 * MIB, range(4))
    assert all_to_all_ns(Members(q, TWO, cores=1)) - START - HOP == pytest.approx(
        2 * 64 * MIB / 150
    )
    q = ask("collective_permute", 64 * MIB, (0, 1))
    assert move_ns(Members(q, TWO, cores=1), 4, 2) == move_ns(Members(q, TWO), 2, 2)


def test_what_is_not_routed_over_other_chips_has_the_whole_link() -> None:
    """Chips 0, 1 and 4: both are neighbours. Chips 0 and 10: two rows and two columns apart."""
    near = found("mesh", "all_gather", 3 * MIB, (0, 4, 16))[0]
    assert near.links == pytest.approx(2 * MIB / (2 * LINK))
    far = found("mesh", "all_gather", 2 * MIB, (0, 40))[0]
    assert far.links == pytest.approx(4 * MIB / (LINK * ROUTED))
