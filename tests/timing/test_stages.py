"""Stages of each algorithm, worked out by hand from the documented steps and traffic.

All figures are those of the platforms: trn2 has 4 ranks and 4 links of 128 GB/s per chip and an HBM
stack of 716.8 GB/s for each rank; a chip's EFA interface gives 6.25 GB/s to each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from nki_dist.collectives.choose import choose
from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.price import all_to_all_ns, move_ns, stages
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.topology.topology import Topology, system

MIB = 1 << 20
HBM, LINK, FABRIC, EFA = 716.8, 128.0, 716.8, 6.25
RING = HBM * 0.785
HOP, FAR = 1500.0, 15000.0
TWO = system("trn2", ranks=128)  # instances
TRN3 = system("trn3")


def ask(op: str, nbytes: int, group: Sequence[int], t: Topology = TWO) -> Question:
    node = t.ranks_per_instance * t.arch.instances_per_ultraserver
    return Question(op, nbytes, tuple(group), RankLayout(t.ranks_per_chip, node), t.arch)


def found(
    name: str, op: str, nbytes: int, group: Sequence[int], t: Topology = TWO, sharing: int = 1
) -> list[Stage]:
    q = ask(op, nbytes, group, t)
    return stages(q, choose(q, name), t, sharing)


def same(got: Sequence[Stage], *wanted: tuple[float, float, float]) -> None:
    assert [(s.latency, s.links, s.hbm) for s in got] == [pytest.approx(w) for w in wanted]


# ---- rings --------------------------------------------------------------------------------------


def test_a_ring_on_one_instance() -> None:
    """Eight ranks on two chips; everything but the own chunk crosses the link between them."""
    b, moved = 8 * MIB, 7 * MIB
    gather = (7 * HOP, moved / LINK, 2 * moved / RING)
    scatter = (7 * HOP, moved / LINK, 3 * moved / RING)
    same(found("ring", "all_gather", b, range(8)), gather)
    same(found("ring", "reduce_scatter", b, range(8)), scatter)
    same(found("ring", "all_reduce", b, range(8)), scatter, gather)


def test_a_ring_on_one_chip_needs_no_link() -> None:
    same(found("ring", "all_gather", 4 * MIB, range(4)), (3 * HOP, 0, 2 * 3 * MIB / RING))


def test_a_ring_crosses_to_the_nearest_chip() -> None:
    """Chips 10, four links away, and 1; both links of this chip count."""
    (stage,) = found("ring", "all_gather", 3 * MIB, (0, 40, 4))
    assert stage.links == pytest.approx(2 * MIB / LINK)
    (stage,) = found("ring", "all_gather", 3 * MIB, (0, 64, 4))  # not the one on the other node
    assert stage.links == pytest.approx(max(2 * MIB / LINK, 2 * MIB / (EFA * 3 / 2)))


def test_a_ring_over_two_instances() -> None:
    """Four members, two ways of four between instances, a rank's EFA share for each of two."""
    (stage,) = found("ring", "all_gather", 4 * MIB, (0, 4, 64, 68))
    same([stage], ((2 * FAR + 2 * HOP) / 4 * 3, 3 * MIB / (2 * EFA), 2 * 3 * MIB / RING))


def test_a_ring_of_one_does_nothing() -> None:
    for name in ("ring", "mesh", "single_step_mesh", "rdh", "hierarchical"):
        assert found(name, "all_reduce", MIB, (3,)) == []


def test_kangaring_has_half_the_steps_and_touches_for_two() -> None:
    b, moved = 8 * MIB, 7 * MIB
    gather = (4 * HOP, moved / LINK, 1.5 * moved / RING)
    scatter = (4 * HOP, moved / LINK, 2 * moved / RING)
    same(found("kangaring", "all_gather", b, range(8)), gather)
    same(found("kangaring", "all_reduce", b, range(8)), scatter, gather)


# ---- mesh and RDH -------------------------------------------------------------------------------


def on_chip(b: float, reduces: bool) -> tuple[float, float, float]:
    """Four ranks: a quarter is the own one. Reducing reads all and writes a quarter."""
    return HOP, 0.75 * b / FABRIC, (1.25 if reduces else 1.5) * b / HBM


def test_mesh_is_a_step_on_the_chip_and_one_between_chips() -> None:
    """Two chips, one link between them; each rank sends a chunk to the other chip."""
    b, chunk = 8 * MIB, MIB
    gather = (HOP, 4 * chunk / (LINK * 0.704), 2 * chunk / HBM)
    scatter = (HOP, 4 * chunk / (LINK * 0.704), 3 * chunk / HBM)
    same(found("mesh", "all_gather", b, range(8)), on_chip(b, False), gather)
    same(found("mesh", "reduce_scatter", b, range(8)), on_chip(b, True), scatter)
    whole = found("mesh", "all_reduce", b, range(8))
    same(whole, on_chip(b, True), scatter, on_chip(b, False), gather)
    same(found("mesh", "all_gather", b, range(4)), on_chip(b, False))


def test_mesh_touches_what_comes_from_every_other_chip() -> None:
    """Chips 0, 1 and 2 in a row: the farthest is two links away, over the first of them."""
    across = found("mesh", "all_gather", 12 * MIB, range(12))[-1]
    crossed = 3 * 4 * MIB / (LINK * 0.704)  # one link to chip 1, two to chip 2
    same([across], (HOP + 200, crossed, 2 * 2 * MIB / HBM))


def test_mesh_between_instances_has_all_of_efa() -> None:
    same(found("mesh", "all_gather", 2 * MIB, (0, 64)), (FAR, MIB / EFA, 2 * MIB / HBM))
    both = found("mesh", "all_gather", 4 * MIB, (0, 1, 64, 65))[-1]
    assert both.links == pytest.approx(2 * MIB / (2 * EFA))  # two ranks' chunks and shares


def test_a_single_step_sends_whole_buffers_to_everybody() -> None:
    b = MIB
    same(found("single_step_mesh", "all_reduce", b, range(8)), (HOP, 16 * b / LINK, 16 * b / HBM))
    same(found("single_step_mesh", "all_reduce", b, range(4)), (HOP, 3 * b / FABRIC, 8 * b / HBM))
    same(found("single_step_mesh", "all_reduce", b, (0, 64)), (FAR, b / EFA, 4 * b / HBM))
    for op in ("all_gather", "reduce_scatter"):
        assert found("single_step_mesh", op, b, range(8)) == found("mesh", op, b, range(8))


def test_rdh_halves_and_doubles_between_chips() -> None:
    """Four chips in a ring, one rank's axis of two links each; then twice as much."""
    b, chunk = 16 * MIB, MIB
    steps = [(HOP, 4 * moved / (2 * LINK), 2 * moved / HBM) for moved in (chunk, 2 * chunk)]
    same(found("rdh", "all_gather", b, range(16)), on_chip(b, False), *steps)
    steps = [(HOP, 4 * moved / (2 * LINK), 3 * moved / HBM) for moved in (chunk, 2 * chunk)]
    same(found("rdh", "reduce_scatter", b, range(16)), on_chip(b, True), *steps)


def test_rdh_with_a_rank_per_chip_uses_one_axis_at_a_time() -> None:
    """Two of a chip's links lead to others of these four, but a rank's partner is one of them."""
    steps = [(HOP, moved / LINK, 2 * moved / HBM) for moved in (MIB, 2 * MIB)]
    same(found("rdh", "all_gather", 4 * MIB, (0, 4, 8, 12)), *steps)


def test_rdh_between_instances() -> None:
    same(found("rdh", "all_gather", 2 * MIB, (0, 64)), (FAR, MIB / EFA, 2 * MIB / HBM))


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
    assert stages(q, choose(q), TWO) == wanted


def test_groups_on_the_same_chips_share_links_but_not_efa() -> None:
    one, four = (found("mesh", "all_gather", MIB, (0, 4), sharing=n) for n in (1, 4))
    assert four[0].links == 4 * one[0].links
    one, four = (found("mesh", "all_gather", MIB, (0, 64), sharing=n) for n in (1, 4))
    assert four == one
    q = ask("all_gather", 4 * MIB, (0, 1, 4, 5, 64, 65, 68, 69))
    one, four = (stages(q, choose(q, "hierarchical"), TWO, n)[-1] for n in (1, 4))
    assert four.links == 4 * one.links


def test_a_switch_counts_once_and_offers_all_ports() -> None:
    """trn3: four links of 32 GB/s from each chip to the switch of its server, whoever is asked."""
    assert TRN3.path(0, 8) == ("server", "server")
    (stage,) = found("mesh", "all_gather", 2 * MIB, (0, 8), TRN3)
    same([stage], (HOP + 200, MIB / (4 * 32 * 0.704), 2 * MIB / 1225))


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
        return all_to_all_ns(ask("all_to_all", b, group), TWO)

    assert ns(range(8), 8 * MIB) == pytest.approx(5000 + HOP + 16 * MIB / (LINK * 0.704))
    assert ns(range(4), 4 * MIB) == pytest.approx(5000 + HOP + 2 * 4 * MIB / HBM)
    assert ns((0, 64), 2 * MIB) == pytest.approx(5000 + FAR + MIB / EFA)
    assert ns((3,), MIB) == pytest.approx(5000 + 2 * MIB / HBM)
    slow = TWO.arch.with_values("a test", chip_fabric_gbps=100.0)
    q = replace(ask("all_to_all", 4 * MIB, range(4)), arch=slow)
    assert all_to_all_ns(q, TWO) == pytest.approx(5000 + HOP + 3 * MIB / 100)


def test_moves() -> None:
    def ns(to: int, channels: int = 1) -> float:
        return move_ns(ask("collective_permute", MIB, (0, to)), TWO, channels, 2)

    assert ns(4) == pytest.approx(5000 + HOP + MIB / LINK)
    assert ns(4, 2) == pytest.approx(5000 + HOP + MIB / (2 * LINK))
    assert ns(1) == ns(0) == pytest.approx(5000 + HOP + 2 * MIB / HBM)  # on the chip
    assert ns(8, 4) == pytest.approx(5000 + HOP + 200 + max(MIB / 512, 2 * MIB / HBM))
    assert ns(64) == ns(64, 4) == pytest.approx(5000 + FAR + MIB / EFA)
    slow = TWO.arch.with_values("a test", hbm_stack_gbps=1e6, chip_fabric_gbps=1e6)
    q = replace(ask("collective_permute", MIB, (0, 4)), arch=slow)
    assert move_ns(q, TWO, 5, 2) == pytest.approx(5000 + HOP + MIB / 512)  # a chip has four links
    slow = TWO.arch.with_values("a test", chip_fabric_gbps=100.0)
    q = replace(ask("collective_permute", MIB, (0, 1)), arch=slow)
    assert move_ns(q, TWO, 1, 2) == pytest.approx(5000 + HOP + MIB / 100)
