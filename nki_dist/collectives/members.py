"""Ranks that carry out a stage together, in simulated time: their links, channels and steps.

An algorithm is a list of stages that follow each other. A stage takes its latency (a fixed time per
step), and the longer of two transfers that overlap: the busiest kind of link, and what its ranks
read and write. A cost never falls as bytes are added.

A rank copies over channels, one for each CC-core of its physical cores. A channel copies at
`collective_channel_gbps`, which reads and writes each byte once; a byte that is added to another is
touched three times and takes half as long again. Rings use all channels at any size: each carries a
cycle of its own. Elsewhere channels share the bytes of a step in packets, so a step that is smaller
than a packet has one of them. That is what measured collectives show: an all-reduce of two trn1
ranks has two channels, a permutation of trn2 ranks one, and small all-gathers one
(docs/collectives_time.md). HBM is faster than its ranks' channels on every platform, and limits
a stage only where somebody sets it lower.

Steps and traffic are as documented. Two figures are chosen so that costs of an all-reduce of 64
trn2 ranks cross where the documented ranges of sizes meet: `ring_hop_ns` (56 MiB; it lies in the
documented range of 1 to 2 us) and `mesh_link_share` (1 MiB). Both are used everywhere. Doesn't
model other traffic on the links, DMA engines shared with the kernel, the smaller number of touches
in SBUF, or who computes the sums. Links of a kind are loaded evenly, as if routes and cycles were
chosen well.

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst, and
compute-comm-overlap.rst for CC-cores, streams and packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.collectives.question import Question
from nki_dist.topology.topology import Topology

GATHER: Final = 2  # touches of HBM per received byte: read at the sender, write here
REDUCE: Final = 3  # written, and read again with what it is added to


def touches(reduces: bool) -> int:
    return REDUCE if reduces else GATHER


@dataclass(frozen=True)
class Stage:
    """A part of an algorithm, in nanoseconds: see the module's docstring.

    Attributes:
        latency: of its steps.
        links: on the busiest kind of link.
        copying: of a rank's channels, or of its share of the HBM.
    """

    latency: float
    links: float
    copying: float

    @property
    def total(self) -> float:
        return self.latency + max(self.links, self.copying)


class Members:
    """The ranks of a question's group, and the wires between them.

    Args:
        sharing: groups that do the same at the same time on the same chips.
        cores: of each rank, that take part together; all of them if 0.
    """

    def __init__(
        self,
        question: Question,
        topology: Topology,
        sharing: int = 1,
        cores: int = 0,
    ) -> None:
        self.arch: Arch = question.arch
        self.topology = topology
        self.sharing = sharing
        self.size = question.size
        self.ranks = ranks = question.group
        self.question = question
        layout = question.layout
        self.rank_efa = question.arch.efa_chip_gbps / layout.ranks_per_chip
        self.nodes = len(question.nodes)
        self.chips = tuple(ranks[members[0]] for members in question.chips)  # a rank on each
        self.on_chip = self.size / len(self.chips)
        stacks = self.arch.hbm_stack_gbps * self.arch.stacks_per_chip
        self.hbm_gbps = stacks / layout.ranks_per_chip
        self.cores = cores or question.arch.cores_per_chip // layout.ranks_per_chip
        self.channels = question.arch.cc_cores_per_core * self.cores
        self.ports = {k: self._ports(k) for k in self.arch.link_gbps}

    def among(self, members: Sequence[int]) -> Members:
        """A part of the group, given by positions."""
        ranks = tuple(self.ranks[m] for m in members)
        question = replace(self.question, group=ranks)
        return Members(question, self.topology, self.sharing, self.cores)

    def _ports(self, kind: str) -> int:
        """Links of a kind that a chip can use to reach the others of the group."""
        most = self.arch.links_per_chip.get(kind, 1)
        if self.arch.fabric == "switch" and kind != "direct":
            return most
        here = self.chips[0]
        direct = sum(self.topology.path(here, c) == (kind,) for c in self.chips if c != here)
        return max(1, min(most, direct))

    def crossed(self, a: int, b: int) -> dict[str, int]:
        """How many links of each kind data crosses; a switch counts once, it has two sides."""
        path = self.topology.path(a, b)
        once = self.arch.fabric == "switch"
        return {kind: 1 if once else path.count(kind) for kind in path}

    def wire(self, flows: Iterable[tuple[dict[str, int], float]], share: float = 1.0) -> float:
        """Time on the busiest kind of link.

        Args:
            flows: (links crossed, bytes a chip sends).
            share: of a link's bandwidth, for what chips in between pass on.
        """
        loads: dict[str, float] = {}
        for links, nbytes in flows:
            routed = share if sum(links.values()) > 1 else 1.0
            for kind, count in links.items():
                load = count * nbytes * self.sharing / routed
                loads[kind] = loads.get(kind, 0.0) + load
        return max((load / self._gbps(kind) for kind, load in loads.items()), default=0.0)

    def to_all(self, flows: Iterable[tuple[dict[str, int], float]]) -> float:
        """As `wire`, for flows to all chips at once, which overload what they are routed over."""
        return self.wire(flows, self.arch.mesh_link_share)

    def _gbps(self, kind: str) -> float:
        if kind == "efa":  # a rank's share; sharing groups have shares of their own
            return self.rank_efa * self.on_chip * self.sharing
        return self.arch.link_gbps[kind] * self.ports[kind]

    def hop(self, a: int, b: int) -> float:
        """Latency of one step between two ranks."""
        path = self.topology.path(a, b)
        if "efa" in path:
            return self.arch.efa_alpha_ns
        return self.arch.ring_hop_ns + max(0, len(path) - 1) * self.arch.link_hop_ns

    def farthest(self) -> float:
        """Latency of a step to all others."""
        return max((self.hop(self.chips[0], c) for c in self.chips[1:]), default=0.0)

    def touch(self, nbytes: float, channels: int = 0) -> float:
        """Time in which a rank reads and writes in one step.

        Args:
            nbytes: read and written, together.
            channels: how many are allowed; those of the rank if 0.
        """
        packets = nbytes / 2 / self.arch.collective_packet_bytes
        return self.copy(nbytes, max(1.0, min(packets, channels or self.channels, self.channels)))

    def copy(self, nbytes: float, channels: float = 0) -> float:
        """As `touch`, with exactly so many channels; with all of the rank if 0."""
        rate = (channels or self.channels) * self.arch.collective_channel_gbps
        return max(nbytes / self.hbm_gbps, nbytes / 2 / rate)

    def share_chip(self, nbytes: float, reduces: bool) -> list[Stage]:
        """The stage in which the ranks of each chip gather or reduce `nbytes` among themselves."""
        r = self.on_chip
        if r <= 1:
            return []
        touched = (1 + 1 / r if reduces else 2 * (1 - 1 / r)) * nbytes
        moved = (1 - 1 / r) * nbytes
        links = moved / self.arch.chip_fabric_gbps
        return [Stage(self.arch.ring_hop_ns, links, self.touch(touched))]
