"""Where ranks sit and how far they are apart, against published tables and by properties."""

from __future__ import annotations

import itertools
from collections import deque

import pytest

import nki_dist as nki
from nki_dist.cli import main
from nki_dist.errors import LaunchError
from nki_dist.topology.identity import ChipId, CoreId, InstanceId, RankId, StackId
from nki_dist.topology.topology import SYSTEMS, system

# neuron-ls of an instance with 16 chips, as published: up, left, down, right.
DEVICE_TABLE = {
    0: [12, 3, 4, 1], 1: [13, 0, 5, 2], 2: [14, 1, 6, 3], 3: [15, 2, 7, 0],
    4: [0, 7, 8, 5], 5: [1, 4, 9, 6], 6: [2, 5, 10, 7], 7: [3, 6, 11, 4],
    8: [4, 11, 12, 9], 9: [5, 8, 13, 10], 10: [6, 9, 14, 11], 11: [7, 10, 15, 8],
    12: [8, 15, 0, 13], 13: [9, 12, 1, 14], 14: [10, 13, 2, 15], 15: [11, 14, 3, 12],
}  # fmt: skip
TORI = ("trn1", "trn2", "trn2-ultraserver")


def one_per_chip(topology):
    """The first rank of each chip."""
    return range(0, topology.ranks, topology.ranks_per_chip)


@pytest.mark.parametrize("name", ["trn1", "trn1n", "trn2"])
def test_neighbours_are_those_of_the_device_table(name):
    topology = system(name)
    for chip, expected in DEVICE_TABLE.items():
        assert [c.number for c in topology.neighbours(chip)] == expected


def test_an_ultraserver_adds_a_ring_through_its_instances():
    topology = system("trn2-ultraserver")
    for instance, chip in itertools.product(range(4), range(16)):
        found = topology.neighbours(ChipId(InstanceId(instance), chip))
        plane, rings = found[:4], found[4:]
        assert [c.number for c in plane] == DEVICE_TABLE[chip]
        assert {c.instance.number for c in plane} == {instance}
        assert [c.number for c in rings] == [chip, chip]
        assert [c.instance.number for c in rings] == [(instance - 1) % 4, (instance + 1) % 4]


def test_inf2_is_a_ring_of_twelve():
    topology = system("inf2")
    for chip in range(12):
        around = [(chip - 1) % 12, (chip + 1) % 12]
        assert [c.number for c in topology.neighbours(chip)] == around


@pytest.mark.parametrize(
    ("name", "lnc", "ranks", "instances", "per_chip"),
    [
        ("trn1", None, 32, 1, 2),
        ("inf2", None, 24, 1, 2),
        ("trn2", None, 64, 1, 4),
        ("trn2", 1, 128, 1, 8),
        ("trn2-ultraserver", None, 256, 4, 4),
        ("trn2-ultraserver", 1, 512, 4, 8),
        ("trn3", None, 256, 4, 4),
        ("trn3-gen2", None, 576, 36, 4),
        ("trn3-gen2", 1, 1152, 36, 8),
    ],
)
def test_sizes_of_products(name, lnc, ranks, instances, per_chip):
    topology = system(name, lnc=lnc)
    assert (topology.ranks, topology.instances) == (ranks, instances)
    assert topology.ranks_per_chip == per_chip


@pytest.mark.parametrize("lnc", [1, 2])
def test_ranks_take_cores_in_order_and_share_a_stack(lnc):
    topology = system("trn2-ultraserver", lnc=lnc)
    seen = []
    for rank in range(topology.ranks):
        place = topology.place(rank)
        assert place.chip.instance == place.instance
        assert {c.chip for c in place.cores} == {place.chip}
        assert {c.number // 2 for c in place.cores} == {place.stack.number}
        assert RankId(rank) in topology.ranks_of(place.chip)
        seen += place.cores
    whole = [
        CoreId(ChipId(InstanceId(i), chip), core)
        for i in range(4)
        for chip in range(16)
        for core in range(8)
    ]
    assert seen == whole


def test_place_of_one_rank():
    place = system("trn2-ultraserver").place(70)  # 64 ranks per instance, 4 per chip
    assert place.instance == InstanceId(1)
    assert (place.chip.number, place.stack.number) == (1, 2)
    assert [c.number for c in place.cores] == [4, 5]
    assert str(place) == "rank 70: cores 4, 5 and HBM stack 2 of chip 1 of instance 1"


@pytest.mark.parametrize("name", [*TORI, "inf2"])
def test_hops_are_shortest_ways_through_the_neighbours(name):
    """A breadth-first search that knows nothing but `neighbours`."""
    topology = system(name)
    ranks = {topology.place(r).chip: r for r in one_per_chip(topology)}
    for start in list(ranks)[:: 7 if len(ranks) > 16 else 1]:
        far, queue = {start: 0}, deque([start])
        while queue:
            chip = queue.popleft()
            for other in topology.neighbours(chip):
                if other not in far:
                    far[other] = far[chip] + 1
                    queue.append(other)
        assert {c: topology.hops(ranks[start], r) for c, r in ranks.items()} == far


@pytest.mark.parametrize(
    ("name", "racks", "servers", "chips"), [("trn3", 2, 2, 16), ("trn3-gen2", 2, 18, 4)]
)
def test_hops_through_switches_are_shortest_ways(name, racks, servers, chips):
    """A breadth-first search over chips, server switches, rack switches and direct links."""
    topology = system(name)
    wires: dict[tuple, set[tuple]] = {}

    def wire(a, b):
        wires.setdefault(a, set()).add(b)
        wires.setdefault(b, set()).add(a)

    for r, s, c in itertools.product(range(racks), range(servers), range(chips)):
        wire((r, s, c), ("server", r, s))
        wire((r, s, c), ("rack", r))
        wire((r, s, c), ((r + 1) % racks, s, c))
    for start in [(0, 0, 0), (0, servers - 1, 3), (1, 1, 2)]:
        far, queue = {start: 0}, deque([start])
        while queue:
            at = queue.popleft()
            for other in wires[at]:
                if other not in far:
                    far[other] = far[at] + 1
                    queue.append(other)
        number = {p: ((p[0] * servers + p[1]) * chips + p[2]) for p in wires if p[0] in (0, 1)}
        here = number[start] * topology.ranks_per_chip
        for place, n in number.items():
            assert topology.hops(here, n * topology.ranks_per_chip) == far[place]
        (direct,) = topology.neighbours(number[start])
        assert (direct.instance.number, direct.number) == (
            (1 - start[0]) * servers + start[1],
            start[2],
        )


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("trn1", {"xy": 4 * 48}),  # 384 GB/s per chip, both ways
        ("trn1n", {"xy": 4 * 96}),  # 768
        ("inf2", {"xy": 2 * 51.539607552}),  # 192 GiB/s
        ("trn2", {"xy": 4 * 128}),  # 1,024
        ("trn2-ultraserver", {"xy": 4 * 128, "z": 2 * 64}),  # and 256
        ("trn3-gen2", {"server": 4 * 32, "rack": 5 * 32, "direct": 2 * 32}),  # 256, 320, 128
    ],
)
def test_bandwidth_of_a_chip_is_the_published_one(name, links):
    """GB/s each way over all links of a kind; published figures are for both ways."""
    arch = system(name).arch
    for kind, gbps in links.items():
        assert arch.link_gbps[kind] * arch.links_per_chip[kind] == pytest.approx(gbps)


def test_identities_are_values_of_their_own_types():
    first, second = InstanceId(0), InstanceId(1)
    chip = ChipId(first, 3)
    same = [RankId(3), InstanceId(3), chip, StackId(chip, 3), CoreId(chip, 3)]
    assert len(set(same)) == len(same)  # no two kinds are equal, whatever their numbers
    assert all(a != b for a, b in itertools.combinations(same, 2))
    assert [str(i) for i in same] == [
        "rank 3",
        "instance 3",
        "chip 3 of instance 0",
        "HBM stack 3 of chip 3 of instance 0",
        "core 3 of chip 3 of instance 0",
    ]
    assert sorted([ChipId(second, 0), ChipId(first, 5)]) == [ChipId(first, 5), ChipId(second, 0)]
    for make in (RankId, InstanceId, lambda n: ChipId(first, n), lambda n: CoreId(chip, n)):
        for wrong in (-1, 1.0, True, "1", None):
            with pytest.raises(LaunchError, match="must be an int from 0 on"):
                make(wrong)
    with pytest.raises(AttributeError):
        chip.number = 4
    with pytest.raises(TypeError):
        _ = RankId(1) < InstanceId(2)


def test_kinds_of_links():
    topology = system("trn2-ultraserver")
    assert topology.path(0, 4) == ("xy",)
    assert topology.path(0, 3 * 64) == ("z",)
    assert topology.path(0, 255) == ("xy", "xy", "z")
    gen2 = system("trn3-gen2")  # 16 ranks per server, 18 servers per rack
    assert gen2.path(0, 4) == ("server", "server")
    assert gen2.path(0, 16) == ("rack", "rack")
    assert gen2.path(0, 18 * 16) == ("direct",)
    assert gen2.path(0, 18 * 16 + 4) == ("server", "server", "direct")
    gen1 = system("trn3")  # direct links join servers 0 and 2, 1 and 3
    assert gen1.path(64, 3 * 64) == ("direct",)
    assert gen1.path(0, 64) == ("rack", "rack")
    for topology in (gen1, gen2):
        assert set(topology.path(0, 575 if topology is gen2 else 255)) <= set(
            topology.arch.link_gbps
        )


def test_separate_instances_reach_each_other_by_efa():
    assert system("trn2", ranks=65).path(0, 64) == ("efa",)
    assert system("trn2-ultraserver", ranks=257).path(3, 256) == ("efa",)
    assert system("trn2", ranks=65).hops(64, 3) == 1


def test_worlds_know_their_topology():
    with nki.World(ranks=80, lnc=2, host="inprocess") as world:
        assert world.topology.instances == 2
        assert world.topology.place(79).chip == ChipId(InstanceId(1), 3)
        assert world.topology.hops(0, 5) == 1


def test_presets():
    with nki.World.trn2(host="inprocess") as world:
        assert (world.ranks, world.lnc, world.topology.instances) == (64, 2, 1)
    with nki.World.trn2_ultraserver(host="inprocess") as world:
        assert (world.ranks, world.lnc, world.topology.instances) == (256, 2, 4)
        assert world.topology.path(0, 64) == ("z",)
    with nki.World.trn2_ultraserver(lnc=1, ranks=9, host="inprocess", check="strict") as world:
        assert (world.ranks, world.lnc, world.checks.strict) == (9, 1, True)
    with nki.World.trn2(lnc=1, host="inprocess") as world:
        assert world.ranks == 128


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: system("trn9"), "no system 'trn9'; allowed: trn1"),
        (lambda: system("trn1", lnc=2), "lnc=2; trn1 allows 1 to 1"),
        (lambda: system("trn2", ranks=0), "ranks=0; must be a positive int, 65,536"),
        (lambda: system("trn2", ranks=65_537), "ranks=65537; must be .* 65,536 at most"),
        (lambda: system("trn2").place(64), "rank 64; this world has ranks 0 to 63"),
        (lambda: system("trn2").hops(0, -1), "rank -1; must be an int from 0 on"),
        (lambda: system("trn2").neighbours(16), "there are 1 instances of 16 chips"),
        (lambda: system("inf2", ranks=25).hops(0, 24), "no network between instances"),
    ],
)
def test_what_is_not_there_is_refused(attempt, message):
    with pytest.raises(LaunchError, match=message):
        attempt()


@pytest.mark.parametrize("name", SYSTEMS)
def test_drawings_show_every_chip_and_rank(name):
    topology = system(name)
    text = topology.draw()
    for chip in range(topology.arch.chips_per_instance):
        assert text.count(f"chip {chip} ") >= topology.instances
    for rank in one_per_chip(topology):
        assert f"{rank}-{rank + topology.ranks_per_chip - 1}" in text


def test_command_line(capsys):
    assert main(["topology", "trn2", "--ranks", "66"]) == 0
    text = capsys.readouterr().out
    assert "instance 1" in text
    assert "64-65" in text
    assert "between separate instances or UltraServers: EFA" in text
    assert main(["topology", "trn2-ultraserver", "--hops", "0", "255"]) == 0
    assert "hops 3 (links: xy + xy + z)" in capsys.readouterr().out
    assert main(["topology", "trn1", "--lnc", "2"]) == 1
    assert "lnc=2" in capsys.readouterr().err


def test_several_ultraservers_are_connected_by_efa():
    world = nki.World.trn2_ultraserver(count=4)
    assert (world.ranks, world.lnc) == (1024, 2)
    assert world.topology.path(0, 255) == nki.World.trn2_ultraserver().topology.path(0, 255)
    assert world.topology.path(255, 256) == world.topology.path(0, 1023) == ("efa",)
    assert nki.World.trn2_ultraserver(count=2, lnc=1).ranks == 1024
    assert nki.World.trn2_ultraserver(ranks=300).ranks == 300


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "count=0; must be a positive int"),
        ({"count": 1.0}, "count=1.0; must be a positive int"),
        ({"count": 2, "ranks": 512}, "count=2 and ranks=512; give one of them"),
    ],
)
def test_counts_that_are_none(options, message):
    with pytest.raises(LaunchError, match=message):
        nki.World.trn2_ultraserver(**options)
