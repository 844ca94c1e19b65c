"""Which figures of the architecture the time of exchanges rests on: those that change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final

from nki_dist import arch
from nki_dist.arch import Arch
from nki_dist.arch.model import Dma, Fabric
from nki_dist.collectives.choose import NAMES, Layout, Question, choose
from nki_dist.collectives.price import exchange_ns, move_ns, price_ns
from nki_dist.isa.effects import Meets
from nki_dist.launcher.topology import Topology
from tests.isa.effects.exchanging import Met

ELSEWHERE: Final = {
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
                what = meets.time(machine.i, machine.state.core, 2, a)
                found += (what.busy_ns, what.latency_ns)
        return found

    return rested_on(times, (Dma, Fabric))


@cache
def of_collectives() -> frozenset[str]:
    """All collectives together, on one instance and on two."""
    return frozenset(rested_on(lambda a: list(_prices(a)), (Fabric,)))


def _prices(a: Arch) -> Iterator[float]:
    for ranks, instances in ((64, 1), (128, 2)):
        topology: Any = Topology(a, ranks, 2)
        layout = Layout(topology.ranks_per_chip, 64)
        group = tuple(range(ranks))

        def asked(nbytes: int, group: tuple[int, ...] = group, layout: Any = layout) -> Question:
            return Question("all_reduce", nbytes, group, layout, a)

        for nbytes in (1 << 11, 1 << 25):
            for name in NAMES if instances == 1 else ("", "hierarchical"):
                yield price_ns(asked(nbytes), choose(asked(nbytes), name), topology)
            yield exchange_ns(asked(nbytes), topology)
        for far in (1, 4, 8, ranks - 1):
            yield move_ns(asked(1 << 20, (0, far)), topology, 1, 2)
