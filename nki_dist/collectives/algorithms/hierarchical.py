"""Hierarchical: within nodes and between nodes in separate stages, each with its own algorithm.

Between nodes, members with the same place in their node form a group. Gathering goes between nodes
first, reducing within nodes first, because the slower network then carries less. Order of the
reduction: the inner algorithm's over the members of a node, then the outer one's over the nodes.

Source: neuron-runtime/explore/internode-collective-comm.rst, "Multiple Ranks per Node".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki_dist.collectives.algorithms import Algorithm
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction


def hierarchical(nodes: Sequence[Sequence[int]], inner: Algorithm, outer: Algorithm) -> Algorithm:
    """The algorithm for a group whose members sit on these nodes.

    Args:
        nodes: positions in the group by node; each node has as many.
        inner, outer: algorithms within nodes and between nodes.
    """

    def sides(x: Party) -> tuple[Party, Party, int]:
        """Own node, members with the same place on all nodes, and that place."""
        node = next(n for n in nodes if x.me in n)
        place = list(node).index(x.me)
        return x.among(node), x.among([n[place] for n in nodes]), place

    def all_gather(x: Party, mine: Array) -> Waiting:
        within, between, _ = sides(x)
        columns = yield from outer.all_gather(between, mine)
        rows = yield from inner.all_gather(within, np.concatenate(columns))
        found: list[Array] = [mine] * x.size
        for place, row in enumerate(rows):
            for node, array in zip(nodes, np.split(row, len(nodes))):
                found[node[place]] = array
        return found

    def reduce_scatter(x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        within, between, _ = sides(x)
        columns = [
            np.concatenate([chunks[node[place]] for node in nodes])
            for place in range(len(nodes[0]))
        ]
        column = yield from inner.reduce_scatter(within, columns, reduction)
        mine = yield from outer.reduce_scatter(between, np.split(column, len(nodes)), reduction)
        return mine

    def all_reduce(x: Party, flat: Array, reduction: Reduction) -> Waiting:
        within, between, _ = sides(x)
        parts = np.array_split(flat, within.size)
        part = yield from inner.reduce_scatter(within, parts, reduction)
        finished = yield from outer.all_reduce(between, part, reduction)
        return (yield from inner.all_gather(within, np.concatenate(finished)))

    name = f"hierarchical({inner.name}, {outer.name})"
    return Algorithm(name, all_gather, reduce_scatter, all_reduce, (inner, outer))
