"""Buffers in turn: how many addresses the tensors of one line of a kernel have in SBUF.

A line makes a tensor in every round of its loop. A compiler gives addresses before anything runs,
so these tensors take turns at a number of buffers, and a round begins when the one that had its
buffer is over. Every line has as many as are in use at once in the order written; what is left of
SBUF goes round the lines, cheapest first, a round's worth each. So two tensors of a quarter of SBUF
each are double-buffered, and of two of 28 % one is. In kernels of Beta 1 that goes on for as long
as there is room; later compilers stop at double buffers. Tensors that are written piece by piece
take turns piece by piece. One that is kept while others of its line come and go has its own room.

Where even the buffers in use at once don't fit beside each other, lines share addresses, and who
comes first has room first (`timing.capacity`).

Follows: measured kernels that double their tiles until loads and stores no longer overlap
(docs/accuracy.md, kda/silu); a matmul in 78 block sizes; address rotation of CompileConfig in AWS's
pages of NKI 0.7.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from math import inf

from nki_dist.program import Storage
from nki_dist.timing.pieces import Span


@dataclass(slots=True, eq=False)
class Stay:
    """A piece of a tensor on chip, from its first to its last use or until it is spilled.

    Attributes:
        storage: the tensor.
        span: which of its bytes (`timing.pieces`).
        size: what it takes there.
        first, last: positions of its uses.
        uses: how many of them aren't over.
        waiting: the positions that can't begin before it has room.
        opens: the position in the order written after which it has room, -1 from the beginning.
        before: the stay of what is reloaded.
        reload, save: bytes that come back from HBM when it has room, and that go there at its end.
        until, by: end of the last access so far, and whose that is.
        gone: it is over, and saved.
    """

    storage: Storage
    span: Span
    size: int
    first: int
    last: int
    uses: int = 0
    waiting: list[int] = field(default_factory=list)
    opens: int = -1
    before: Stay | None = None
    reload: int = 0
    save: int = 0
    until: float = -1.0
    by: int = -1
    gone: bool = False


@dataclass
class _Line:
    """The stays of one line of the kernel, by number; `at_once`, `buffers`: bytes."""

    size: int
    stays: list[int] = field(default_factory=list)
    alive: int = 0
    at_once: int = 0
    buffers: int = 0


def shares(
    stays: Sequence[Stay], numbers: Sequence[int], capacity: int, most: float = inf
) -> list[tuple[int, list[int]]]:
    """Which stays share room, and how much.

    Args:
        stays: all of a core, by number.
        numbers: those in the memory meant, in the order they begin.
        capacity: of that memory.
        most: times what is in use at once, that a line may have.
    """
    lines = _lines(stays, numbers)
    left = capacity - sum(line.at_once for line in lines)
    if left < 0:
        return [(capacity, list(numbers))]
    turn = sorted(lines, key=lambda line: line.at_once)
    while turn:
        again = []
        for line in turn:
            line.buffers += line.at_once
            useful = min(line.size * len(line.stays), line.at_once * most)
            more = useful > line.buffers
            if more and line.at_once <= left:
                left -= line.at_once
                again.append(line)
        turn = again
    return [(line.buffers, line.stays) for line in lines]


def _lines(stays: Sequence[Stay], numbers: Sequence[int]) -> list[_Line]:
    """By line of the kernel, what it makes and how much of that is in use at once."""
    found: dict[Hashable, _Line] = {}
    of: dict[int, _Line] = {}
    resident = _resident(stays, numbers)
    ending = iter(sorted(numbers, key=lambda n: stays[n].last))
    ended = next(ending)
    for number in numbers:
        stay = stays[number]
        while stays[ended].last < stay.first:
            of[ended].alive -= 1
            ended = next(ending)
        key = (_line_of(stay), number in resident)
        line = of[number] = found.setdefault(key, _Line(stay.size))
        line.stays.append(number)
        line.alive += 1
        line.at_once = max(line.at_once, line.alive * line.size)
    return list(found.values())


def _line_of(stay: Stay) -> Hashable:
    return stay.storage.location, stay.storage.called, stay.span, stay.size


def _resident(stays: Sequence[Stay], numbers: Sequence[int]) -> set[int]:
    """Those during which another of their line comes and goes, so that they take no turns."""
    earliest: dict[Hashable, int] = {}  # end of those that begin later, by line
    found = set()
    for number in reversed(numbers):
        stay = stays[number]
        line = _line_of(stay)
        if earliest.get(line, stay.last) < stay.last:
            found.add(number)
        earliest[line] = min(earliest.get(line, stay.last), stay.last)
    return found
