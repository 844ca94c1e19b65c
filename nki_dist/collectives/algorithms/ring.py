"""Ring: members in a cycle, each sends to the next only. N - 1 steps, least traffic.

Order of the reduction: chunk c starts at member c + 1 and goes round to member c, so the result is
`((x[c+1] + x[c+2]) + ...) + x[c]`, indices modulo N.

The fallback: any group can use it at any size. On trn1 it is documented for large sizes between
nodes, too, as one flat ring instead of hierarchical stages.

Doesn't model: slices within a chunk, several cycles at once; both change time, not values. Source:
neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.collectives.algorithm import Order, TwoPasses, one_by_one
from nki_dist.collectives.members import Members, Stage, touches
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction


class Ring(TwoPasses):
    name = "ring"

    @classmethod
    def preferred(cls, question: Question) -> bool:
        return True

    def all_gather(self, x: Party, mine: Array) -> Waiting:
        found = [mine] * x.size
        moving = mine
        for step in range(1, x.size):
            x.send((x.me + 1) % x.size, moving)
            moving = yield from x.receive((x.me - 1) % x.size)
            found[(x.me - step) % x.size] = moving
        return found

    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        moving = chunks[(x.me - 1) % x.size]
        for step in range(2, x.size + 1):
            x.send((x.me + 1) % x.size, moving)
            partial = yield from x.receive((x.me - 1) % x.size)
            moving = chunks[(x.me - step) % x.size]
            reduction.combine(partial, moving, moving)
        return moving

    def sums(self, chunk: int, size: int) -> Sequence[Order]:
        return [one_by_one((chunk + 1 + step) % size for step in range(size))]

    def sends(self, reduces: bool, size: int) -> int:
        return size - 1

    def one_pass(self, m: Members, chunk: float, reduces: bool) -> list[Stage]:
        return cycle(m, chunk, touches(reduces) * (m.size - 1), m.size - 1)


def cycle(m: Members, chunk: float, touched: float, hops: int) -> list[Stage]:
    """One way round: everybody's chunk comes by.

    Args:
        touched: how often HBM is touched by a rank, for each byte of a chunk.
        hops: one after the other.
    """
    if m.size == 1:
        return []
    moved = (m.size - 1) * chunk
    links = 0.0
    if len(m.chips) > 1:
        here = m.chips[0]
        near = min((m.crossed(here, c) for c in m.chips[1:]), key=_length)
        links = m.wire([(near, moved)])
    if m.nodes > 1:
        links = max(links, moved / (m.rank_efa * m.size / m.nodes))
    return [Stage(_hop(m) * hops, links, m.copy(touched * chunk))]


def _hop(m: Members) -> float:
    """Latency of a step, on average over the cycle.

    Within a node, cycles follow the wires whatever the order of the group: published per hop.
    """
    following = (*m.ranks[1:], m.ranks[0])
    far = sum("efa" in m.topology.path(a, b) for a, b in zip(m.ranks, following))
    return (far * m.arch.efa_alpha_ns + (m.size - far) * m.arch.ring_hop_ns) / m.size


def _length(links: dict[str, int]) -> tuple[bool, int]:
    return "efa" in links, sum(links.values())
