"""Groups that sit alike, and the messages of their members: what worlds of thousands count with."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from nki_dist import arch, dtypes
from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import choose
from nki_dist.collectives.cost import all_to_all_ns, cost_ns, move_ns
from nki_dist.collectives.members import Members
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.collectives.reduction import reduction
from nki_dist.topology.topology import Topology
from tests.collectives.network import Network

OPS = ("all_gather", "reduce_scatter", "all_reduce")
PLATFORMS = {
    "trn1": Topology(arch.get("trn1"), 256, 1),
    "trn2": Topology(arch.get("trn2"), 1024, 2),
    "trn3": Topology(arch.get("trn3"), 256, 2),
}


def question(world: Topology, op: str, nbytes: int, group: list[int]) -> Question:
    node = world.ranks_per_instance * world.arch.instances_per_ultraserver
    return Question(op, nbytes, tuple(group), RankLayout(world.ranks_per_chip, node), world.arch)


def groups(world: Topology, rng: random.Random) -> list[list[int]]:
    ranks = range(world.ranks)
    chip = world.ranks_per_chip
    found = [rng.sample(ranks, size) for size in (1, 2, 3, 5, 8, 16, 24)]
    found += [list(ranks[first : first + 32]) for first in (0, 64, world.ranks - 32)]
    found += [list(ranks[first::64]) for first in (0, 1, chip, 63)]
    node = world.ranks // 2
    found += [[*ranks[node + 16 : node + 32], *ranks[16:32]]]
    return found


@pytest.mark.parametrize("platform", PLATFORMS)
def test_groups_that_sit_alike_have_one_answer(platform: str) -> None:
    world, rng = PLATFORMS[platform], random.Random(platform)
    moved = 0
    for group in groups(world, rng):
        for nbytes in (512, 1 << 19, 1 << 27):
            for op in OPS:
                asked = question(world, op, nbytes, group)
                equal = asked.moved()
                moved += equal != asked
                assert equal.moved() == equal
                assert (equal.nodes, equal.chips) == (asked.nodes, asked.chips)
                assert str(choose(equal)) == str(choose(asked))
                costs = [cost_ns(Members(q, world, 2, 1), choose(q)) for q in (asked, equal)]
                assert costs[0] == costs[1]
            asked = question(world, "all_to_all", nbytes, group)
            assert all_to_all_ns(Members(asked, world)) == all_to_all_ns(
                Members(asked.moved(), world)
            )
            if len(group) > 1:
                for pair in (group[:2], [group[1], group[1]]):
                    asked = question(world, "collective_permute", nbytes, pair)
                    assert move_ns(Members(asked, world), 1, 2) == move_ns(
                        Members(asked.moved(), world), 1, 2
                    )
    assert moved > 20


def test_groups_that_sit_otherwise_stay_apart() -> None:
    world = PLATFORMS["trn2"]
    for one, other in (
        ([0, 1], [0, 4]),  # a chip, two chips
        ([0, 4], [0, 12]),  # other chips
        ([0, 256], [0, 255]),  # two nodes, one
        ([0, 1, 4, 5], [0, 4, 1, 5]),  # another order
    ):
        first, second = (question(world, "all_gather", 8, g) for g in (one, other))
        assert first.moved() != second.moved()
    first = question(world, "all_gather", 8, [0, 1, 256, 260])
    assert first.moved() == replace(first, group=(514, 515, 768, 772)).moved()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.name)
def test_messages_are_those_that_members_send(algorithm: type[Algorithm], op: str) -> None:
    world, looked = PLATFORMS["trn2"], 0
    shapes = [list(range(n)) for n in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 33)]
    shapes += [[0, 1, 256, 257, 512, 513], [256, 0, 257, 1], list(range(0, 1024, 64))]
    for group in shapes:
        asked = question(world, op, 1 << 10, group)
        if not algorithm.fits(asked):
            continue
        made = algorithm.of(asked, choose)
        says = list(made.messages(op, len(group)))
        assert says == sent_in_a_network(made, op, len(group))
        looked += 1
    assert looked > 4


def sent_in_a_network(made: Algorithm, op: str, size: int) -> list[int]:
    """By place, with numbers in the messages, and by members that go on in another order."""
    network, add = Network(size, last_first=True), reduction("add", dtypes.float32)
    x = np.ones(size, np.float32)
    starts = {
        "all_gather": lambda p: made.all_gather(p, x.copy()),
        "reduce_scatter": lambda p: made.reduce_scatter(p, np.split(x.copy(), size), add),
        "all_reduce": lambda p: made.all_reduce(p, x.copy(), add),
    }
    network.run(starts[op])
    return network.by_member
