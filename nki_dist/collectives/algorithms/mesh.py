"""Mesh: everybody sends to everybody directly. One step, many links; for small sizes.

Order of the reduction: the order of the group, `((x[0] + x[1]) + x[2]) + ...`, whichever member
reduces. Within a node the documented algorithm has a second, on-chip step; it changes which links
are used, and is left to the price.

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nki_dist.collectives.algorithms import Algorithm, two_passes
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction


def exchange(x: Party, outgoing: Sequence[Array]) -> Waiting:
    """Send `outgoing[m]` to each member m; returns what each sent, in the order of the group."""
    found = [outgoing[x.me]] * x.size
    for distance in range(1, x.size):
        other = (x.me + distance) % x.size
        x.send(other, outgoing[other])
    for distance in range(1, x.size):
        other = (x.me - distance) % x.size
        found[other] = yield from x.receive(other)
    return found


def all_gather(x: Party, mine: Array) -> Waiting:
    return (yield from exchange(x, [mine] * x.size))


def reduce_scatter(x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
    return reduction.fold((yield from exchange(x, chunks)))


MESH: Final[Algorithm] = two_passes("mesh", all_gather, reduce_scatter)
