"""Which figures of the architecture the time of exchanges rests on: those that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Final

from nki_dist import arch
from nki_dist.arch import Arch
from nki_dist.arch.model import Dma, Fabric
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import choose
from nki_dist.collectives.cost import all_to_all_ns, cost_ns, move_ns
from nki_dist.collectives.members import Members
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.isa.effects import Meets
from nki_dist.topology.topology import Topology
from tests.isa.effects.exchanging import Met

ELSEWHERE: Final = {
    "cc_cores_per_core": "published, and never assumed",
    "collective_packet_bytes": "published, and never assumed",
    "efa_chip_gbps": "published, and never assumed",
    "links_per_chip": "published, and never assumed",
    "mesh_max_bytes": "published: which algorithm is chosen",
    "rdh_max_bytes": "published: which algorithm is chosen",
}
"""What the times of exchanges depend on besides the figures that instructions name."""


def others(a: Arch, name: str) -> Iterator[Arch]:
    """The architecture with other values of a numeric field."""
    value = getattr(a, name)
    for factor in (2, 1 / 16):
        if isinstance(value, (int, float)):
            yield a.with_values(**{name: value * factor})
        elif isinstance(value, Mapping):
            yield a.with_values(**{name: {k: v * factor for k, v in value.items()}})


def rested_on(times: Callable[[Arch], list[float]], groups: tuple[type, ...]) -> set[str]:
    """Names of the fields that change some of the times."""
    trn2 = arch.get("trn2")
    want = times(trn2)
    names = [f.name for group in groups for f in fields(group)]
    found = {n for n in names if any(times(other) != want for other in others(trn2, n))}
    return found - set(ELSEWHERE)


def within_rank(meets: Meets, seen: list[Met]) -> set[str]:
    """What an instruction says of its own time among the cores of a rank."""

    def times(a: Arch) -> list[float]:
        assert meets.time is not None
        found: list[float] = []
        for one in seen:
            for machine in one.machines:
                what = meets.time(machine.i, machine.slot.lnc_core, 2, a)
                found += (what.busy_ns, what.latency_ns)
        return found

    return rested_on(times, (Dma, Fabric))


@cache
def of_collectives() -> frozenset[str]:
    """All collectives together, on one instance and on two."""
    return frozenset(rested_on(lambda a: list(_costs(a)), (Fabric,)))


def _costs(a: Arch) -> Iterator[float]:
    for ranks in (64, 128):  # one instance, two
        topology = Topology(a, ranks, 2)
        layout = RankLayout(topology.ranks_per_chip, topology.ranks_per_instance)
        for nbytes in (1 << 11, 1 << 25):
            question = Question("all_reduce", nbytes, tuple(range(ranks)), layout, a)
            for algorithm in ALGORITHMS:
                if algorithm.fits(question):
                    yield cost_ns(Members(question, topology), choose(question, algorithm.name))
            yield all_to_all_ns(Members(question, topology))
            for far in (1, 4, 8, ranks - 1):
                pair = Question("collective_permute", nbytes, (0, far), layout, a)
                yield move_ns(Members(pair, topology), 1, 2)
