"""Ring: members in a cycle, each sends to the next only. N - 1 steps, least traffic.

Order of the reduction: chunk c starts at member c + 1 and goes round to member c, so the result is
`((x[c+1] + x[c+2]) + ...) + x[c]`, indices modulo N.

Doesn't model: slices within a chunk, several cycles at once; both change time, not values. Source:
neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nki_dist.collectives.algorithms import Algorithm, two_passes
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction


def all_gather(x: Party, mine: Array) -> Waiting:
    found = [mine] * x.size
    moving = mine
    for step in range(1, x.size):
        x.send((x.me + 1) % x.size, moving)
        moving = yield from x.receive((x.me - 1) % x.size)
        found[(x.me - step) % x.size] = moving
    return found


def reduce_scatter(x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
    moving = chunks[(x.me - 1) % x.size]
    for step in range(2, x.size + 1):
        x.send((x.me + 1) % x.size, moving)
        partial = yield from x.receive((x.me - 1) % x.size)
        moving = chunks[(x.me - step) % x.size]
        reduction.combine(partial, moving, moving)
    return moving


RING: Final[Algorithm] = two_passes("ring", all_gather, reduce_scatter)
