"""What a collective costs in simulated time, from the start of its last member.

`members` has the model, each algorithm its stages.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.members import GATHER, Members, Stage
from nki_dist.collectives.question import Question


def sharing_groups(groups: Sequence[Sequence[int]], question: Question) -> int:
    """How many groups have members on the chip of the question's first rank."""
    per_chip = question.layout.ranks_per_chip
    chip = question.group[0] // per_chip
    return sum(any(rank // per_chip == chip for rank in group) for group in groups)


def stages(m: Members, algorithm: Algorithm) -> list[Stage]:
    """The stages of all_gather, reduce_scatter or all_reduce."""
    return algorithm.stages(m.question.opcode, m, float(m.question.nbytes))


def cost_ns(m: Members, algorithm: Algorithm) -> float:
    """Simulated time of all_gather, reduce_scatter or all_reduce, from the last member's start."""
    return m.arch.collective_start_ns + sum(stage.total for stage in stages(m, algorithm))


def all_to_all_ns(m: Members) -> float:
    """All to all, one step: every member has a chunk for every other."""
    chunk = m.question.nbytes / m.size
    sent = [(m.crossed(m.chips[0], c), m.on_chip**2 * chunk) for c in m.chips[1:]]
    links = m.to_all(sent)
    latency = max(m.farthest(), m.arch.ring_hop_ns if m.size > 1 else 0.0)
    here = (m.on_chip - 1) * chunk / m.arch.chip_fabric_gbps
    stage = Stage(latency, max(links, here), m.touch(GATHER * m.size * chunk))
    return m.arch.collective_start_ns + stage.total


def move_ns(m: Members, channels: int, touches: int) -> float:
    """Tensors of the group's first member to its second; channels use links of their own."""
    a, b = m.ranks
    arch, nbytes = m.arch, m.question.nbytes
    rates = [arch.chip_fabric_gbps]
    for kind in m.topology.path(a, b):
        if kind == "efa":
            rates.append(m.rank_efa)
        else:
            rates.append(arch.link_gbps[kind] * min(channels, arch.links_per_chip.get(kind, 1)))
    copying = m.touch(touches * nbytes, channels=channels)
    stage = Stage(m.hop(a, b), nbytes / min(rates), copying)
    return arch.collective_start_ns + stage.total
