"""KangaRing: a ring over every second member; the one between them is served by its neighbour.

Members are paired. In each of two cycles one of a pair is primary and moves data for both; the
other only hands over its input and takes its result. The cycles swap the roles, and each carries
half of every chunk, so that all members work.

Order of the reduction: for a chunk of pair c, pairs c + 1, c + 2, ..., c modulo the number of pairs
one after the other, in each pair the primary first: `((p[c+1] + s[c+1]) + p[c+2]) + s[c+2] ...`.
The primary is the first of a pair for the first half of a chunk, the second for the other half.

Documented within a node for what is too large for RDH, if the group holds all ranks of each of its
chips; we also use it where RDH isn't possible.

Source: neuron-runtime/explore/intranode-collective-comm.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nki_dist.collectives.algorithm import Algorithm, Order, TwoPasses, one_by_one
from nki_dist.collectives.algorithms import ring
from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction

Pairs: TypeAlias = "Sequence[tuple[int, int]]"


def chip_pairs(question: Question) -> Pairs:
    """Positions of neighbours; none unless the group has whole chips only."""
    found: list[tuple[int, int]] = []
    for members in question.chips:
        if len(members) != question.layout.ranks_per_chip or len(members) % 2:
            return []
        found += zip(members[::2], members[1::2])
    return found


@dataclass(frozen=True)
class KangaRing(TwoPasses):
    """The algorithm for a group whose members are paired like that, by positions."""

    pairs: Pairs
    name = "kangaring"
    needs = "an even number"

    @classmethod
    def fits(cls, question: Question) -> bool:
        return question.size % 2 == 0

    @classmethod
    def preferred(cls, question: Question) -> bool:
        return question.one_node and bool(chip_pairs(question))

    @classmethod
    def of(cls, question: Question, choose: Callable[[Question], Algorithm]) -> Algorithm:
        anyhow = [(n, n + 1) for n in range(0, question.size, 2)]
        return cls(chip_pairs(question) or anyhow)

    def gather_parts(self, x: Party, mine: Array) -> Waiting:
        firsts: list[Array] = []
        seconds: list[Array] = []
        for cycle, half, found in zip(_cycles(x, self.pairs), _halves(mine), (firsts, seconds)):
            found += yield from _gather_cycle(x, cycle, half)
        return [half for both in zip(firsts, seconds) for half in both]

    def all_gather(self, x: Party, mine: Array) -> Waiting:
        halves = yield from self.gather_parts(x, mine)
        return [np.concatenate(both) for both in zip(halves[::2], halves[1::2])]

    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        split = [_halves(chunk) for chunk in chunks]
        halves = []
        for number, cycle in enumerate(_cycles(x, self.pairs)):
            part = [both[number] for both in split]
            halves.append((yield from _scatter_cycle(x, cycle, part, reduction)))
        return np.concatenate(halves)

    def sums(self, chunk: int, size: int) -> Sequence[Order]:
        at = next(n for n, pair in enumerate(self.pairs) if chunk in pair)
        order = [*self.pairs[at + 1 :], *self.pairs[: at + 1]]
        return [one_by_one(m for pair in order for m in pair[::way]) for way in (1, -1)]

    def sends(self, reduces: bool, size: int) -> int:
        # As the primary once to each other pair, and to the secondary what comes by; as that, once.
        return size // 2 + 1 if reduces else size

    def one_pass(self, m: Members, chunk: float, reduces: bool) -> list[Stage]:
        # At each pair a chunk is read once and written twice, or read three times and written once;
        # but the last pair doesn't pass it on, and to the first nothing comes that it would add.
        pairs = m.size / 2
        return ring.cycle(m, chunk, 4 * pairs - 1 if reduces else 3 * pairs - 1, m.size // 2)


def _cycles(x: Party, pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Of both cycles, (primary, secondary) in ring order from the own pair on.

    So the pair that is `away` places ahead is cycle[away], and the one behind cycle[-away].
    """
    at = next(n for n, pair in enumerate(pairs) if x.me in pair)
    cycle = [*pairs[at:], *pairs[:at]]
    return cycle, [(b, a) for a, b in cycle]


def _halves(array: Array) -> tuple[Array, Array]:
    middle = (len(array) + 1) // 2
    return array[:middle], array[middle:]


def _gather_cycle(x: Party, cycle: Pairs, mine: Array) -> Waiting:
    """Everybody's half chunk, in the order of the group."""
    primary, secondary = cycle[0]
    found: list[Array] = [mine] * x.size
    if x.me == secondary:
        x.send(primary, mine)
        for away in range(len(cycle)):
            # Of the own pair, the secondary has one half already.
            arrays = yield from x.receive_all(primary)
            for member, array in zip(cycle[-away] if away else (primary,), arrays):
                found[member] = array
        return found
    found[secondary] = yield from x.receive(secondary)
    x.send_all(secondary, (mine,))
    moving = (mine, found[secondary])
    for away in range(1, len(cycle)):
        x.send_all(cycle[1][0], moving)
        moving = yield from x.receive_all(cycle[-1][0])
        x.send_all(secondary, moving)
        for member, array in zip(cycle[-away], moving):
            found[member] = array
    return found


def _scatter_cycle(
    x: Party, cycle: Pairs, chunks: Sequence[Array], reduction: Reduction
) -> Waiting:
    """The own half chunk, reduced."""
    primary, secondary = cycle[0]
    if x.me == secondary:
        x.send_all(primary, chunks)
        return (yield from x.receive(primary))
    theirs = yield from x.receive_all(secondary)
    combine = reduction.combine
    moving = []
    for member in cycle[-1]:
        combine(chunks[member], theirs[member], chunks[member])
        moving.append(chunks[member])
    for away in range(2, len(cycle) + 1):
        x.send_all(cycle[1][0], moving)
        partial = yield from x.receive_all(cycle[-1][0])
        moving = []
        for member, so_far in zip(cycle[-away], partial):
            combine(so_far, chunks[member], chunks[member])
            combine(chunks[member], theirs[member], chunks[member])
            moving.append(chunks[member])
    x.send(secondary, moving[1])
    return moving[0]
