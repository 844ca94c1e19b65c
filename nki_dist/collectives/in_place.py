"""Collectives that read the members' tensors where they lie, instead of copies that were sent.

A message is then a view of the sender's own tensor: what shares memory with the reader is read
there, what doesn't is copied on its way. Every member adds one chunk, straight from all members'
tensors into its own result, block by block, so that sums stay in the processor's cache; the others
copy it from there. A byte of an all-reduce is read once as operand, once as result of somebody
else, and written once.

Why nobody reads what is written meanwhile, and nobody writes what is read:
- A member writes chunk m of its result after m's message that has it, or is m. In both cases m,
  which alone reads chunk m of the member's source, is done with it; so the result may be the
  source itself. Any other overlap of results and sources is found when the plan is made: then
  copies of the sources are sent.
- A result isn't written again after it was sent, until the member's collective is over; and that
  isn't before all members have said that they have read everything (`finished`). So a program may
  overwrite sources and results as soon as its collective is over, as ever.
- Nobody waits for more than that others go on in the same collective: no deadlock is new.

The order of additions is that of the algorithm that the group uses (`Algorithm.sums`), so values
don't depend on who reads what where. Whether a collective is done this way depends on what all
members compare before anything else (operation, shapes, type, group), so all agree on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nki_dist.collectives.algorithm import Algorithm, Order
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.reduction import Reduction
from nki_dist.program import Instruction

LEAST: Final = 256 << 10  # bytes of a source; copying fewer takes no longer than to wait once more
FEW: Final = 16  # members; everybody sends to everybody
BLOCK: Final = 32 << 10  # elements that are added at once: with partial sums, a part of a L2 cache


def is_in_place(i: Instruction, size: int, algorithm: Algorithm) -> bool:
    """Whether a group carries out a collective like this."""
    if i.opcode not in ("all_gather", "all_reduce") or not 1 < size <= FEW:
        return False
    if min(a.nbytes for a in i["srcs"]) < LEAST:
        return False
    return i.opcode == "all_gather" or algorithm.sums(0, size) is not None


def messages(opcode: str, size: int, tensors: int) -> int:
    """How many messages a member sends."""
    exchanges = 2 if opcode == "all_reduce" else 1
    return exchanges * (size - 1) * tensors + (size - 1).bit_length()


def are_apart(sources: Sequence[Array], results: Sequence[Array], same: bool) -> bool:
    """Whether results may be written while others read the sources.

    Args:
        same: also if a result is its own source, element by element.
    """
    for n, result in enumerate(results):
        for k, source in enumerate(sources):
            if np.may_share_memory(source, result) and not (
                same and n == k and source.ctypes.data == result.ctypes.data
            ):
                return False
    return all(source.flags.c_contiguous for source in sources)


def all_reduce(
    x: Party, source: Array, result: Array, reduction: Reduction, algorithm: Algorithm
) -> Waiting:
    """Write the sum of all members' sources into `result`; both flat and as the tensors are."""
    theirs = yield from x.all_to_all(np.array_split(source, x.size))
    parts = np.array_split(result, x.size)
    sums = algorithm.sums(x.me, x.size)
    assert sums is not None
    fold(sums, theirs, parts[x.me], reduction)
    found = yield from x.all_to_all([parts[x.me]] * x.size)
    for member, part in enumerate(parts):
        if member != x.me:
            part[...] = found[member]


def finished(x: Party) -> Waiting:
    """Return when all members have come here."""
    distance = 1
    while distance < x.size:
        x.send_to(x.cores[(x.me + distance) % x.size], None)
        yield from x.receive((x.me - distance) % x.size)
        distance *= 2


def fold(sums: Sequence[Order], arrays: Sequence[Array], out: Array, reduction: Reduction) -> None:
    """Write the sum of arrays into `out`, rounded once.

    Args:
        sums: in which order; each of its equal parts has one.
        arrays: of the members; `out` may be one of them.
    """
    adder = _Adder(arrays, reduction)
    ends = np.cumsum([0, *(len(part) for part in np.array_split(out, len(sums)))]).tolist()
    for order, first, last in zip(sums, ends, ends[1:]):
        for start in range(first, last, BLOCK):
            adder.add(order, out, start, min(start + BLOCK, last))


class _Adder:
    """Adds a block of the members' arrays at a time.

    Args:
        arrays: of the members, as the tensors are.
    """

    def __init__(self, arrays: Sequence[Array], reduction: Reduction) -> None:
        self._arrays, self._reduction = arrays, reduction
        self._scratch: list[Array] = []

    def add(self, order: Order, out: Array, start: int, stop: int) -> None:
        """Write one block of the sum, in `order`, of several members."""
        assert not isinstance(order, int)
        round_to = self._reduction.from_wide
        first = self._sum(order[0], start, stop, 0)
        second = self._sum(order[1], start, stop, 1)
        total = out[start:stop] if round_to is None else self._partial(0, stop - start)
        self._reduction.combine(first, second, total)
        if round_to is not None:
            round_to(out[start:stop], total)

    def _sum(self, order: Order, start: int, stop: int, number: int) -> Array:
        """A block of a partial sum, in the scratch of that number; lower ones are in use.

        What is one member's, and needn't be converted, is left where it lies.
        """
        if isinstance(order, int):
            array, convert = self._arrays[order][start:stop], self._reduction.to_wide
            if convert is None:
                return array
            total = self._partial(number, stop - start)
            convert(total, array)
            return total
        first = self._sum(order[0], start, stop, number)
        second = self._sum(order[1], start, stop, number + 1)
        total = self._partial(number, stop - start)
        self._reduction.combine(first, second, total)
        return total

    def _partial(self, number: int, size: int) -> Array:
        while number >= len(self._scratch):
            self._scratch.append(np.empty(BLOCK, self._reduction.wide))
        return self._scratch[number][:size]
