"""Mesh: everybody sends to everybody directly. One step, many links; for small sizes.

Order of the reduction: the order of the group, `((x[0] + x[1]) + x[2]) + ...`, whichever member
reduces. Within a node the documented algorithm has a second, on-chip step; it changes which links
are used, and is left to the cost.

Within a node it is documented below 1 MiB, between nodes for small groups and sizes without
figures: there we use the same size, and 4 members as "small group".

Source: neuron-runtime/explore/intranode-collective-comm.rst, internode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nki_dist.collectives.algorithm import Order, TwoPasses, one_by_one
from nki_dist.collectives.members import Members, Stage, touches
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction

SMALL_GROUP: Final = 4  # members up to which it is used between nodes; our assumption


class Mesh(TwoPasses):
    name = "mesh"

    @classmethod
    def preferred(cls, question: Question) -> bool:
        few = question.one_per_node and question.size <= SMALL_GROUP
        return (question.one_node or few) and question.nbytes < question.arch.mesh_max_bytes

    def all_gather(self, x: Party, mine: Array) -> Waiting:
        return x.all_to_all([mine] * x.size)

    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        return reduction.fold((yield from x.all_to_all(chunks)))

    def sums(self, chunk: int, size: int) -> Sequence[Order]:
        return [one_by_one(range(size))]

    def sends(self, reduces: bool, size: int) -> int:
        return size - 1

    def one_pass(self, m: Members, chunk: float, reduces: bool) -> list[Stage]:
        stages = m.share_chip(m.size * chunk, reduces)
        others = m.chips[1:]
        if others:
            sent = [(m.crossed(m.chips[0], c), m.on_chip * chunk) for c in others]
            links = m.to_all(sent)
            copying = m.touch(touches(reduces) * len(others) * chunk)
            stages.append(Stage(m.farthest(), links, copying))
        return stages
