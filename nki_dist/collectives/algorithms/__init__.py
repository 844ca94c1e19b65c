"""Algorithms of collectives, each a small file of message exchanges between members of a group.

Every algorithm gathers arrays, reduces and scatters chunks, and reduces whole buffers. They differ
in who sends what to whom, and therefore in the order of a reduction, which each file documents;
what is gathered is the same bits whichever is used. `choose` picks one by size and group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction

Gather: TypeAlias = Callable[[Party, Array], Waiting]
Scatter: TypeAlias = Callable[[Party, Sequence[Array], Reduction], Waiting]
Reduce: TypeAlias = Callable[[Party, Array, Reduction], Waiting]


@dataclass(frozen=True)
class Algorithm:
    """How a group carries out collectives. Each function is a generator (see Party).

    Attributes:
        all_gather: `(x, mine)` returns the members' arrays in the order of the group. `mine` must
            not be written afterwards.
        reduce_scatter: `(x, chunks, reduction)`, one chunk per member, returns the own reduced
            chunk, not yet finished. Chunks may be written on the way.
        all_reduce: `(x, flat, reduction)` returns a list of finished arrays that, one after the
            other, are the reduced buffer.
        parts: of a hierarchical one, the algorithms within nodes and between nodes.
    """

    name: str
    all_gather: Gather
    reduce_scatter: Scatter
    all_reduce: Reduce
    parts: tuple[Algorithm, ...] = ()


def two_passes(
    name: str, gather: Gather, scatter: Scatter, gather_parts: Gather | None = None
) -> Algorithm:
    """An algorithm whose all-reduce is reduce-scatter followed by all-gather.

    Args:
        gather_parts: what all-reduce gathers with if not `gather`: it may return several arrays per
            member, which saves an algorithm that receives them in parts from joining them.
    """

    def all_reduce(x: Party, flat: Array, reduction: Reduction) -> Waiting:
        mine = yield from scatter(x, np.array_split(flat, x.size), reduction)
        parts = yield from (gather_parts or gather)(x, reduction.finish(mine))
        return parts

    return Algorithm(name, gather, scatter, all_reduce)
