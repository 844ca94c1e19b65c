"""Hierarchical: within nodes and between nodes in separate stages, each with its own algorithm.

Between nodes, members with the same place in their node form a group. Gathering goes between nodes
first, reducing within nodes first, because the slower network then carries less. Order of the
reduction: the inner algorithm's over the members of a node, then the outer one's over the nodes.

Several members on each of several nodes use it. On trn1 large sizes are one flat ring instead; what
is large isn't documented, and we use the size up to which there is RDH.

Source: neuron-runtime/explore/internode-collective-comm.rst, "Multiple Ranks per Node".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction


@dataclass(frozen=True)
class Hierarchical(Algorithm):
    """The algorithm for a group whose members sit on these nodes.

    Attributes:
        nodes: positions in the group by node; each node has as many.
        inner, outer: algorithms within nodes and between nodes.
    """

    nodes: Sequence[Sequence[int]]
    inner: Algorithm
    outer: Algorithm
    name = "hierarchical"
    needs = "an equal number on each node"

    @classmethod
    def fits(cls, question: Question) -> bool:
        return len({len(node) for node in question.nodes}) == 1

    @classmethod
    def preferred(cls, question: Question) -> bool:
        arch = question.arch
        flat = arch.generation == 2 and question.nbytes > arch.rdh_max_bytes
        return not (question.one_node or question.one_per_node or flat)

    @classmethod
    def of(cls, question: Question, choose: Callable[[Question], Algorithm]) -> Algorithm:
        nodes, group = question.nodes, question.group
        # Gathering, the inner stage moves everything; reducing, the outer one has a share of it.
        share = question.nbytes // len(nodes[0])
        inner = choose(replace(question, group=tuple(group[m] for m in nodes[0])))
        heads = tuple(group[node[0]] for node in nodes)
        return cls(nodes, inner, choose(replace(question, group=heads, nbytes=share)))

    def all_gather(self, x: Party, mine: Array) -> Waiting:
        within, between = self._parties(x)
        columns = yield from self.outer.all_gather(between, mine)
        rows = yield from self.inner.all_gather(within, np.concatenate(columns))
        found: list[Array] = [mine] * x.size
        for place, row in enumerate(rows):
            for node, array in zip(self.nodes, np.split(row, len(self.nodes))):
                found[node[place]] = array
        return found

    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        within, between = self._parties(x)
        nodes = self.nodes
        columns = [
            np.concatenate([chunks[node[place]] for node in nodes])
            for place in range(len(nodes[0]))
        ]
        column = yield from self.inner.reduce_scatter(within, columns, reduction)
        return (
            yield from self.outer.reduce_scatter(between, np.split(column, len(nodes)), reduction)
        )

    def all_reduce(self, x: Party, flat: Array, reduction: Reduction) -> Waiting:
        within, between = self._parties(x)
        parts = np.array_split(flat, within.size)
        part = yield from self.inner.reduce_scatter(within, parts, reduction)
        finished = yield from self.outer.all_reduce(between, part, reduction)
        return (yield from self.inner.all_gather(within, np.concatenate(finished)))

    def messages(self, opcode: str, size: int) -> Sequence[int]:
        nodes, places = len(self.nodes), len(self.nodes[0])
        outer = self.outer.messages(opcode, nodes)
        within = ("reduce_scatter", "all_gather") if opcode == "all_reduce" else (opcode,)
        inner = [self.inner.messages(o, places) for o in within]
        found = [0] * size
        for n, node in enumerate(self.nodes):
            for place, member in enumerate(node):
                found[member] = outer[n] + sum(each[place] for each in inner)
        return found

    def stages(self, opcode: str, m: Members, nbytes: float) -> list[Stage]:
        within, between = m.among(self.nodes[0]), m.among([node[0] for node in self.nodes])
        found = self.outer.stages(opcode, between, nbytes / within.size)
        if opcode != "all_gather":
            found = self.inner.stages("reduce_scatter", within, nbytes) + found
        if opcode != "reduce_scatter":
            found = found + self.inner.stages("all_gather", within, nbytes)
        return found

    def _parties(self, x: Party) -> tuple[Party, Party]:
        """The own node, and the members with the same place on all nodes."""
        node = next(n for n in self.nodes if x.me in n)
        place = list(node).index(x.me)
        return x.among(node), x.among([n[place] for n in self.nodes])

    def __str__(self) -> str:
        return f"{self.name}({self.inner}, {self.outer})"
