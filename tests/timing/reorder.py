"""Other orders in which a program may run with the same results.

What a compiler may do with a program is what its order graph allows, so running a random legal
order must give the same bytes; if it doesn't, an ordering the kernel relies on isn't expressed.

Invariant: the order depends on the program and the seed alone. Doesn't keep engine queues (they are
a consequence of the order), and moves nothing across a dynamic loop. Tensors of a reordered program
live longer than before (from the beginning to the end of straight runs), so it needs more memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from random import Random

from nki_dist.program import Block, Instruction, Loop, Program, instructions
from nki_dist.timing.order import OrderGraph, order


def legal_order(program: Program, seed: int, trips: Sequence[int] = ()) -> list[int]:
    """Positions of the executed instructions in a random order that the graph allows."""
    return shuffled(order(program, trips), seed)


def shuffled(graph: OrderGraph, seed: int) -> list[int]:
    """A random topological order of a graph."""
    n = len(graph)
    waits = [0] * n
    after: list[list[int]] = [[] for _ in range(n)]
    for at in range(n):
        for p in set(graph.before(at)):
            after[p].append(at)
            waits[at] += 1
    random = Random(seed)
    ready = [at for at in range(n) if not waits[at]]
    chosen: list[int] = []
    while ready:
        pick = random.randrange(len(ready))
        ready[pick], ready[-1] = ready[-1], ready[pick]
        at = ready.pop()
        chosen.append(at)
        for later in after[at]:
            waits[later] -= 1
            if not waits[later]:
                ready.append(later)
    return chosen


def reordered(program: Program, seed: int) -> Program:
    """The program with every straight run of instructions in another legal order, renumbered."""
    return _Reordering(program, seed).result


class _Reordering:
    def __init__(self, program: Program, seed: int) -> None:
        self.random = Random(seed)
        self.result = copy(program)
        self.result.storages = [copy(s) for s in program.storages]
        self.renumbered: dict[int, int] = {}
        self.result.body = self._block(program.body)
        for i in instructions(self.result.body):
            i.after = tuple(self.renumbered[n] for n in i.after)

    def _block(self, block: Block) -> Block:
        result: Block = []
        run: list[Instruction] = []
        for item in block:
            if isinstance(item, Loop):
                result += self._straight(run)
                run = []
                loop = copy(item)
                loop.body = self._block(item.body)
                result.append(loop)
            else:
                run.append(item)
        return result + self._straight(run)

    def _straight(self, run: list[Instruction]) -> Block:
        if not run:
            return []
        part = copy(self.result)
        part.body = list(run)
        graph = order(part)
        chosen = [copy(graph.executed[at]) for at in shuffled(graph, self.random.getrandbits(32))]
        first, last = run[0].ordinal, run[-1].ordinal
        for ordinal, i in enumerate(chosen, first):
            self.renumbered[i.ordinal] = ordinal
            i.ordinal = ordinal
        for s in self.result.storages:
            s.first = first if first <= s.first <= last else s.first
            s.last = last if first <= s.last <= last else s.last
        return list(chosen)
