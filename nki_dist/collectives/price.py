"""What a collective costs in simulated time: steps, links and HBM of each algorithm.

An algorithm is a list of stages that follow each other. A stage takes its latency (a fixed time per
step), and the longer of two transfers that overlap: the busiest kind of link, and the HBM that its
ranks read and write. A price grows with the number of bytes.

Steps and traffic are as documented; so are the times per hop, within a range. Two figures aren't
published and are chosen so that prices cross where the documented ranges of sizes meet:
`mesh_link_share` (1 MiB) and `ring_hbm_share` (56 MiB); both are for an all-reduce of 64 trn2 ranks
and are used everywhere. Doesn't model other traffic on the links, DMA engines shared with the
kernel, the smaller number of touches in SBUF, or who computes the sums. Links of a kind are loaded
evenly, as if routes and cycles were chosen well.

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from nki_dist.arch import Arch
from nki_dist.collectives.algorithms import Algorithm
from nki_dist.collectives.choose import Question

GATHER: Final = 2  # touches of HBM per received byte: read at the sender, write here
REDUCE: Final = 3  # written, and read again with what it is added to


class Paths(Protocol):
    """Which links lie between ranks; the launcher's topology."""

    def path(self, a: int, b: int) -> tuple[str, ...]:
        """The kind of each link that data crosses, "efa" between nodes, () on one chip."""


@dataclass(frozen=True)
class Stage:
    """A part of an algorithm, in nanoseconds: see the module's docstring."""

    latency: float
    links: float
    hbm: float

    @property
    def total(self) -> float:
        return self.latency + max(self.links, self.hbm)


class Members:
    """Ranks that carry out one stage together, and the wires between them.

    Args:
        sharing: groups that do the same at the same time on the same chips.
    """

    def __init__(self, question: Question, ranks: tuple[int, ...], paths: Paths, sharing: int):
        self.arch: Arch = question.arch
        self.paths = paths
        self.sharing = sharing
        self.size = len(ranks)
        self.ranks = ranks
        layout = question.layout
        self.rank_efa = question.arch.efa_chip_gbps / layout.ranks_per_chip
        self.nodes = len({r // layout.ranks_per_node for r in ranks})
        chips: dict[int, int] = {}
        for r in ranks:
            chips.setdefault(r // layout.ranks_per_chip, r)
        self.chips = tuple(chips.values())  # a rank on each
        self.on_chip = self.size / len(chips)
        stacks = self.arch.hbm_stack_gbps * self.arch.stacks_per_chip
        self.hbm_gbps = stacks / layout.ranks_per_chip
        self.ports = {k: self._ports(k) for k in self.arch.link_gbps}

    def _ports(self, kind: str) -> int:
        """Links of a kind that a chip can use to reach the others of the group."""
        most = self.arch.links_per_chip.get(kind, 1)
        if self.arch.fabric == "switch" and kind != "direct":
            return most
        here = self.chips[0]
        direct = sum(self.paths.path(here, c) == (kind,) for c in self.chips if c != here)
        return max(1, min(most, direct))

    def crossed(self, a: int, b: int) -> dict[str, int]:
        """How many links of each kind data crosses; a switch counts once, it has two sides."""
        path = self.paths.path(a, b)
        once = self.arch.fabric == "switch"
        return {kind: 1 if once else path.count(kind) for kind in path}

    def wire(self, flows: Iterable[tuple[dict[str, int], float]]) -> float:
        """Time on the busiest kind of link; flows are (links crossed, bytes a chip sends)."""
        loads: dict[str, float] = {}
        for links, nbytes in flows:
            for kind, count in links.items():
                loads[kind] = loads.get(kind, 0.0) + count * nbytes * self.sharing
        return max((load / self._gbps(kind) for kind, load in loads.items()), default=0.0)

    def _gbps(self, kind: str) -> float:
        if kind == "efa":  # a rank's share; sharing groups have shares of their own
            return self.rank_efa * self.on_chip * self.sharing
        return self.arch.link_gbps[kind] * self.ports[kind]

    def hop(self, a: int, b: int) -> float:
        """Latency of one step between two ranks."""
        path = self.paths.path(a, b)
        if "efa" in path:
            return self.arch.efa_alpha_ns
        return self.arch.ring_hop_ns + max(0, len(path) - 1) * self.arch.link_hop_ns

    def farthest(self) -> float:
        """Latency of a step to all others."""
        return max((self.hop(self.chips[0], c) for c in self.chips[1:]), default=0.0)

    def touch(self, nbytes: float, share: float = 1.0) -> float:
        return nbytes / (self.hbm_gbps * share)


# ---- ring and KangaRing -------------------------------------------------------------------------


def _cycle(m: Members, chunk: float, touches: float, skipped: int) -> list[Stage]:
    """One way round; `skipped` ranks of each hop are served by their neighbour."""
    steps, moved = m.size - 1, (m.size - 1) * chunk
    if not steps:
        return []
    following = (*m.ranks[1:], m.ranks[0])
    # Within a node, cycles follow the wires whatever the order of the group: published per hop.
    far = sum("efa" in m.paths.path(a, b) for a, b in zip(m.ranks, following))
    latency = far * m.arch.efa_alpha_ns + (m.size - far) * m.arch.ring_hop_ns
    each = latency / m.size * (m.size // 2 if skipped else steps)
    links = 0.0
    if len(m.chips) > 1:
        here = m.chips[0]
        near = min((m.crossed(here, c) for c in m.chips[1:]), key=_length)
        links = m.wire([(near, moved)])
    if m.nodes > 1:
        share = m.rank_efa * m.size / m.nodes
        links = max(links, moved / share)
    return [Stage(each, links, m.touch(touches * moved, m.arch.ring_hbm_share))]


def _length(links: dict[str, int]) -> tuple[bool, int]:
    return "efa" in links, sum(links.values())


# ---- mesh and RDH -------------------------------------------------------------------------------


def _local(m: Members, nbytes: float, reduces: bool) -> list[Stage]:
    """The on-chip stage of mesh and RDH."""
    r = m.on_chip
    if r <= 1:
        return []
    touched = (1 + 1 / r if reduces else 2 * (1 - 1 / r)) * nbytes
    moved = (1 - 1 / r) * nbytes
    return [Stage(m.arch.ring_hop_ns, moved / m.arch.chip_fabric_gbps, m.touch(touched))]


def _mesh(m: Members, chunk: float, reduces: bool) -> list[Stage]:
    stages = _local(m, m.size * chunk, reduces)
    others = len(m.chips) - 1
    if others:
        sent = [(m.crossed(m.chips[0], c), m.on_chip * chunk) for c in m.chips[1:]]
        touches = (REDUCE if reduces else GATHER) * others * chunk
        links = m.wire(sent) / (m.arch.mesh_link_share if m.nodes == 1 else 1.0)
        stages.append(Stage(m.farthest(), links, m.touch(touches)))
    return stages


def _rdh(m: Members, chunk: float, reduces: bool) -> list[Stage]:
    """Exchanges between chips one after the other, each with twice as much as the one before."""
    stages = _local(m, m.size * chunk, reduces)
    chips = len(m.chips)
    touches = REDUCE if reduces else GATHER
    distance = chips // 2
    moved = chunk
    while distance:
        links = m.crossed(m.chips[0], m.chips[distance])
        # A torus is a hypercube, so partners are neighbours.
        near = dict.fromkeys(links, 1)
        wire = max(1.0, max(m.ports.get(k, 1) for k in links) / m.on_chip)  # an axis per rank
        latency = m.hop(m.chips[0], m.chips[distance]) if "efa" in links else m.arch.ring_hop_ns
        stages.append(
            Stage(latency, wire * m.wire([(near, m.on_chip * moved)]), m.touch(touches * moved))
        )
        distance //= 2
        moved *= 2
    return stages


def _single_step(m: Members, nbytes: float) -> list[Stage]:
    if m.size == 1:
        return []
    copies = m.on_chip * m.on_chip * nbytes
    sent = [(m.crossed(m.chips[0], c), copies) for c in m.chips[1:]]
    latency = max(m.farthest(), m.arch.ring_hop_ns if m.nodes == 1 else 0.0)
    on_chip = (m.on_chip - 1) * nbytes / m.arch.chip_fabric_gbps
    links = max(m.wire(sent), on_chip)
    return [Stage(latency, links, m.touch(2 * m.size * nbytes))]


# ---- whole operations ---------------------------------------------------------------------------


def _pass(name: str, m: Members, nbytes: float, reduces: bool) -> list[Stage]:
    """Gathering or reducing `nbytes` in all."""
    chunk = nbytes / m.size
    touches = REDUCE if reduces else GATHER
    if name == "ring":
        return _cycle(m, chunk, touches, 0)
    if name == "kangaring":  # of two ranks: 3 touches instead of 4, 4 instead of 6
        return _cycle(m, chunk, 2.0 if reduces else 1.5, 1)
    if name == "rdh":
        return _rdh(m, chunk, reduces)
    return _mesh(m, chunk, reduces)


_PASSES: Final = {
    "all_gather": (False,),
    "reduce_scatter": (True,),
    "all_reduce": (True, False),
}


def stages(question: Question, algorithm: Algorithm, paths: Paths, sharing: int = 1) -> list[Stage]:
    """The stages of all_gather, reduce_scatter or all_reduce.

    Args:
        sharing: groups with members on the same chip that run this at the same time.
    """
    group, nbytes = question.group, float(question.nbytes)
    if not algorithm.parts:
        return _simple(question, algorithm.name, Members(question, group, paths, sharing), nbytes)
    inner, outer = algorithm.parts
    first = group[0] // question.layout.ranks_per_node
    node = tuple(r for r in group if r // question.layout.ranks_per_node == first)
    within = Members(question, node, paths, sharing)
    place = dict.fromkeys(r // question.layout.ranks_per_node for r in group)
    heads = tuple(next(r for r in group if r // question.layout.ranks_per_node == n) for n in place)
    between = Members(question, heads, paths, sharing)
    found = []
    if question.opcode != "all_gather":
        found += _pass(inner.name, within, nbytes, True)
    found += _simple(question, outer.name, between, nbytes / len(node))
    if question.opcode != "reduce_scatter":
        found += _pass(inner.name, within, nbytes, False)
    return found


def _simple(question: Question, name: str, m: Members, nbytes: float) -> list[Stage]:
    if name == "single_step_mesh" and question.opcode == "all_reduce":
        return _single_step(m, nbytes)
    return [s for reduces in _PASSES[question.opcode] for s in _pass(name, m, nbytes, reduces)]


def price_ns(question: Question, algorithm: Algorithm, paths: Paths, sharing: int = 1) -> float:
    """Simulated time of all_gather, reduce_scatter or all_reduce, from the last member's start."""
    return question.arch.collective_start_ns + sum(
        stage.total for stage in stages(question, algorithm, paths, sharing)
    )


def exchange_ns(question: Question, paths: Paths, sharing: int = 1) -> float:
    """All to all, one step: every member has a chunk for every other."""
    m = Members(question, question.group, paths, sharing)
    chunk = question.nbytes / m.size
    sent = [(m.crossed(m.chips[0], c), m.on_chip**2 * chunk) for c in m.chips[1:]]
    links = m.wire(sent) / (m.arch.mesh_link_share if m.nodes == 1 else 1.0)
    latency = max(m.farthest(), m.arch.ring_hop_ns if m.size > 1 else 0.0)
    here = (m.on_chip - 1) * chunk / m.arch.chip_fabric_gbps
    stage = Stage(latency, max(links, here), m.touch(GATHER * m.size * chunk))
    return question.arch.collective_start_ns + stage.total


def move_ns(question: Question, paths: Paths, channels: int, touches: int) -> float:
    """Tensors of the group's first member to its second; channels use links of their own."""
    a, b = question.group
    m = Members(question, (a, b) if a != b else (a,), paths, 1)
    arch, nbytes, path = question.arch, question.nbytes, paths.path(a, b)
    rates = [arch.chip_fabric_gbps]
    for kind in path:
        if kind == "efa":
            rates.append(m.rank_efa)
        else:
            rates.append(arch.link_gbps[kind] * min(channels, arch.links_per_chip.get(kind, 1)))
    stage = Stage(m.hop(a, b), nbytes / min(rates), m.touch(touches * nbytes))
    return arch.collective_start_ns + stage.total
