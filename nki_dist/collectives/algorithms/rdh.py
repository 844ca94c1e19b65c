"""Recursive doubling and halving (RDH): pairs exchange, log2 N steps. Groups of 2^p members.

Halving starts with neighbours (same chip) and ends with the member N/2 away; doubling is the other
way round, so chips exchange first and then share within. Order of the reduction: a balanced binary
tree over the group, `((x[0] + x[1]) + (x[2] + x[3])) + ...`, the lower position always on the left.

Within a node it is documented from Mesh's sizes up to 56 MiB; between nodes without figures, and we
use the same size.

Source: neuron-runtime/explore/intranode-collective-comm.rst (on-chip reduction, then halving along
the axes of the torus as a hypercube), internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nki_dist.collectives.algorithm import Order, TwoPasses
from nki_dist.collectives.members import Members, Stage, touches
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction


class Rdh(TwoPasses):
    name = "rdh"
    needs = "a power of two"

    @classmethod
    def fits(cls, question: Question) -> bool:
        return question.size & (question.size - 1) == 0

    @classmethod
    def preferred(cls, question: Question) -> bool:
        one_stage = question.one_node or question.one_per_node
        return one_stage and question.nbytes <= question.arch.rdh_max_bytes

    def all_gather(self, x: Party, mine: Array) -> Waiting:
        found: Sequence[Array] = [mine]  # of those that differ from this one in higher bits
        distance = x.size // 2
        while distance:
            other = x.me ^ distance
            x.send_all(other, found)
            arrays = yield from x.receive_all(other)
            low, high = (arrays, found) if x.me & distance else (found, arrays)
            found = [array for pair in zip(low, high) for array in pair]
            distance //= 2
        return found

    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        if isinstance(chunks, np.ndarray):
            return (yield from _halved(x, chunks, reduction))
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

    def leaves(self, elements: int, size: int) -> bool:
        """Rows are read in the first step only. Whoever has the last chunk of the result has it
        from members that were done with all steps of the sum when they sent theirs."""
        return size > 1 and elements > 0 and elements % size == 0

    def sums(self, chunk: int, size: int) -> Sequence[Order]:
        orders: list[Order] = list(range(size))
        while len(orders) > 1:
            orders = list(zip(orders[::2], orders[1::2]))
        return orders

    def sends(self, reduces: bool, size: int) -> int:
        return size.bit_length() - 1

    def one_pass(self, m: Members, chunk: float, reduces: bool) -> list[Stage]:
        """Exchanges between chips follow each other, each with twice as much as the one before."""
        stages = m.share_chip(m.size * chunk, reduces)
        distance, moved = len(m.chips) // 2, chunk
        while distance:
            stages.append(_step(m, distance, moved, touches(reduces)))
            distance //= 2
            moved *= 2
        return stages


def _halved(x: Party, chunks: Array, reduction: Reduction) -> Waiting:
    """Reduce and scatter the rows of a matrix; what is left in each step is every other row.

    The same additions as chunk by chunk, in one call for all of a step: in large groups chunks are
    small, and calls take longer than sums. The first step leaves the matrix as it is and adds into
    a new one, of half its size; the others add there.
    """
    distance, total = 1, None
    while distance < x.size:
        other, bit = x.me ^ distance, int(x.me & distance > 0)
        x.send(other, chunks[1 - bit :: 2])
        chunks = chunks[bit::2]
        theirs = yield from x.receive(other)
        first, second = (chunks, theirs) if x.me < other else (theirs, chunks)
        if total is None:
            total = chunks = reduction.empty(chunks.shape)
        reduction.combine(first, second, chunks)
        distance *= 2
    return chunks[0]


def _step(m: Members, distance: int, moved: float, touched: int) -> Stage:
    links = m.crossed(m.chips[0], m.chips[distance])
    # A torus is a hypercube, so partners are neighbours.
    near = dict.fromkeys(links, 1)
    wire = max(1.0, max(m.ports.get(k, 1) for k in links) / m.on_chip)  # an axis per rank
    latency = m.hop(m.chips[0], m.chips[distance]) if "efa" in links else m.arch.ring_hop_ns
    return Stage(latency, wire * m.wire([(near, m.on_chip * moved)]), m.touch(touched * moved))
