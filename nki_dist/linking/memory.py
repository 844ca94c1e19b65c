"""Which of a program's storages share memory.

Local storages (SBUF, PSUM, private HBM) whose lifetimes don't meet share host buffers, so a program
with a hundred thousand tiles needs as much memory as are alive at once. That is invisible: the
checks at compile time prove that no element is read before it is written, and storages where they
can't are poisoned when their life begins. For the same reason the programs of a core share buffers
(launches come one after the other), and so do the cores that run one after the other.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from typing import NamedTuple

from nki_dist.hbm.alignment import padded
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Program, Storage, instructions


class Places(NamedTuple):
    """Where the local storages of a program are.

    Attributes:
        numbers: of the storages.
        where: for each of them, which part it is.
        parts: the buffer that each is at the start of, and how many bytes; no two are equal.
        sizes: of the buffers, in bytes.
        brief: for each buffer, whether nothing in it is alive while the core waits for others.
        outside: storages that aren't local.
    """

    numbers: list[int]
    where: list[int]
    parts: list[tuple[int, int]]
    sizes: list[int]
    brief: list[bool]
    outside: list[Storage]


def places(program: Program) -> Places:
    """Which buffer each local storage is in, and what buffers there are.

    Storages of one size whose lives don't meet are in the same one, if both are brief or neither,
    and in the first that is free: so the rounds of a loop find the same places, as far as they can,
    and linking knows them again.
    """
    body = instructions(program.body)
    waits = sorted(i.ordinal for i in body if INSTRUCTIONS[i.opcode].synchronises)
    local = [s for s in program.storages if s.role == "local" and s.first >= 0]
    outside = [s for s in program.storages if s.role != "local"]
    found = Places([], [], [], [], [], outside)
    parts: dict[tuple[int, int], int] = {}
    free: dict[tuple[int, bool], list[int]] = defaultdict(list)
    busy: list[tuple[int, int]] = []
    for s in sorted(local, key=lambda s: (s.first, s.number)):
        while busy and busy[0][0] < s.first:
            _, number = heapq.heappop(busy)
            heapq.heappush(free[found.sizes[number], found.brief[number]], number)
        kind = padded(s.nbytes), _is_brief(s, waits)
        if free[kind]:
            number = heapq.heappop(free[kind])
        else:
            number = len(found.sizes)
            found.sizes.append(kind[0])
            found.brief.append(kind[1])
        found.numbers.append(s.number)
        found.where.append(parts.setdefault((number, s.nbytes), len(parts)))
        heapq.heappush(busy, (s.last, number))
    found.parts.extend(parts)
    return found


def _is_brief(s: Storage, waits: list[int]) -> bool:
    """Whether a storage isn't alive at any instruction that waits, given by ordinals in order.

    What lives through a round of a loop, and so through waits before and after its uses there,
    lives from the loop's first instruction to its last.
    """
    at = bisect_left(waits, s.first)
    return at == len(waits) or waits[at] > s.last
