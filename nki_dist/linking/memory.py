"""Which of a program's storages and panels share memory.

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
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from nki_dist.isa import INSTRUCTIONS
from nki_dist.ops.alignment import padded
from nki_dist.program import Program, Storage, instructions


class Life(NamedTuple):
    """When something is in use.

    Attributes:
        first, last: the first and the last moment.
        begins, ends: lanes that have it first and last.
    """

    first: int
    last: int
    begins: int = 0
    ends: int = 0


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


def places(program: Program, lives: dict[int, Life] | None = None) -> Places:
    """Which buffer each local storage is in, and what buffers there are.

    Args:
        lives: of storages by number; as the program's order has it if None.
    """
    body = instructions(program.body)
    waits = sorted(i.ordinal for i in body if INSTRUCTIONS[i.opcode].synchronises)
    local = [s for s in program.storages if s.role == "local" and s.first >= 0]
    outside = [s for s in program.storages if s.role != "local"]
    if lives is None:
        lives = {s.number: Life(s.first, s.last) for s in local}
    kinds = {s.number: (padded(s.nbytes), _is_brief(s, waits)) for s in local}
    shared = sharing((kinds[s.number], lives[s.number], s.number) for s in local)
    buffers = list(dict.fromkeys(shared.values()))
    number_of = {buffer: n for n, buffer in enumerate(buffers)}
    sizes, brief = [size for (size, _), _ in buffers], [brief for (_, brief), _ in buffers]
    found = Places([], [], [], sizes, brief, outside)
    parts: dict[tuple[int, int], int] = {}
    for number, buffer in shared.items():
        found.numbers.append(number)
        part = number_of[buffer], program.storages[number].nbytes
        found.where.append(parts.setdefault(part, len(parts)))
    found.parts.extend(parts)
    return found


def sharing(
    requests: Iterable[tuple[tuple[int, bool], Life, int]],
) -> dict[int, tuple[tuple[int, bool], int]]:
    """A buffer for each of these: its kind, and the number among those of the kind.

    Those of one kind whose lives don't meet are in the same one, and in the first that is free: so
    the rounds of a loop find the same places, as far as they can, and linking knows them again. A
    lane takes what it has had last itself, as it need wait for nobody then.

    Args:
        wanted: kinds, lives and names.
    """
    found: dict[int, tuple[tuple[int, bool], int]] = {}
    free: dict[Hashable, list[int]] = defaultdict(list)
    count: dict[tuple[int, bool], int] = defaultdict(int)
    busy: list[tuple[int, int, tuple[int, bool], int]] = []
    for kind, life, name in sorted(requests, key=lambda w: (w[1].first, w[2])):
        while busy and busy[0][0] < life.first:
            _, number, of, lane = heapq.heappop(busy)
            heapq.heappush(free[of, lane], number)
        mine = free[kind, life.begins]
        if mine:
            number = heapq.heappop(mine)
        else:
            number, count[kind] = count[kind], count[kind] + 1
        found[name] = kind, number
        heapq.heappush(busy, (life.last, number, kind, life.ends))
    return found


def _is_brief(s: Storage, waits: list[int]) -> bool:
    """Whether a storage isn't alive at any instruction that waits, given by ordinals in order.

    What lives through a round of a loop, and so through waits before and after its uses there,
    lives from the loop's first instruction to its last.
    """
    at = bisect_left(waits, s.first)
    return at == len(waits) or waits[at] > s.last
