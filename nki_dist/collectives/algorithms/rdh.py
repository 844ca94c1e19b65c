"""Recursive doubling and halving (RDH): pairs exchange, log2 N steps. Groups of 2^p members.

Halving starts with neighbours (same chip) and ends with the member N/2 away; doubling is the other
way round, so chips exchange first and then share within. Order of the reduction: a balanced binary
tree over the group, `((x[0] + x[1]) + (x[2] + x[3])) + ...`, the lower position always on the left.

Source: neuron-runtime/explore/intranode-collective-comm.rst (on-chip reduction, then halving along
the axes of the torus as a hypercube), internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nki_dist.collectives.algorithms import Algorithm, two_passes
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction


def possible(size: int) -> bool:
    """Whether a group of that size can use it."""
    return size & (size - 1) == 0


def all_gather(x: Party, mine: Array) -> Waiting:
    found = {x.me: mine}
    distance = x.size // 2
    while distance:
        other = x.me ^ distance
        have = sorted(found)
        x.send_all(other, [found[m] for m in have])
        arrays = yield from x.receive_all(other)
        found.update(zip((m ^ distance for m in have), arrays))
        distance //= 2
    return [found[m] for m in range(x.size)]


def reduce_scatter(x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
    mine = dict(enumerate(chunks))
    distance = 1
    while distance < x.size:
        other = x.me ^ distance
        given = [m for m in mine if (m & distance) != (x.me & distance)]
        x.send_all(other, [mine.pop(m) for m in given])
        for m, theirs in zip(mine, (yield from x.receive_all(other))):
            first, second = (mine[m], theirs) if x.me < other else (theirs, mine[m])
            reduction.combine(first, second, mine[m])
        distance *= 2
    return mine[x.me]


RDH: Final[Algorithm] = two_passes("rdh", all_gather, reduce_scatter)
