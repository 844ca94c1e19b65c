"""Where a core's storages are while a program is linked and run.

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
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nki_dist.hbm.alignment import aligned, padded
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


class Pool:
    """Host buffers that programs use in turn: never two that are under way at the same time."""

    def __init__(self) -> None:
        self._buffers: dict[int, list[np.ndarray]] = defaultdict(list)

    def offer(self) -> dict[int, list[np.ndarray]]:
        """All buffers by size, for one program; what it takes from this is still in the pool."""
        return defaultdict(list, {size: list(found) for size, found in self._buffers.items()})

    def add(self, buffer: np.ndarray) -> None:
        """Keep a new buffer for the programs that come later."""
        self._buffers[len(buffer)].append(buffer)

    def clear(self) -> None:
        self._buffers.clear()


class Memory:
    """Buffers of every storage of one program.

    Args:
        program: the program of one core.
        stack: bytes of the HBM stack that the core shares.
        offsets: where in the stack each input and shared storage lies, by (role, index). Inputs
            that all ranks have in common, with the role "common", lie in `common` instead.
        common: bytes that several stacks share; nobody writes them during a launch.
        pool: of host buffers that are the core's own; new ones if None.
        brief: of those that are only used while the core has its turn; `pool` if None.
        known: what `places` gives for the program, if somebody has asked.
    """

    def __init__(
        self,
        program: Program,
        stack: np.ndarray,
        offsets: Mapping[tuple[str, int], int],
        common: np.ndarray | None = None,
        pool: Pool | None = None,
        known: Places | None = None,
        brief: Pool | None = None,
    ) -> None:
        own, known = pool or Pool(), places(program) if known is None else known
        self._buffers: dict[int, np.ndarray] = self._place(known, own, brief or own)
        for s in known.outside:
            if s.role == "constant":
                self._buffers[s.number] = np.frombuffer(s.data or b"", np.uint8)
            elif s.role == "input" and ("common", s.index) in offsets:
                assert common is not None
                at = offsets["common", s.index]
                self._buffers[s.number] = common[at : at + s.nbytes]
            else:
                at = offsets[s.role, s.index]
                self._buffers[s.number] = stack[at : at + s.nbytes]

    @staticmethod
    def _place(found: Places, own: Pool, brief: Pool) -> dict[int, np.ndarray]:
        free = {pool: pool.offer() for pool in {own, brief}}
        buffers = []
        for size, is_brief in zip(found.sizes, found.brief):
            pool = brief if is_brief else own
            if free[pool][size]:
                buffers.append(free[pool][size].pop())
            else:
                buffers.append(aligned(size))
                pool.add(buffers[-1])
        # Storages at one place get one array.
        parts = [buffers[number][:nbytes] for number, nbytes in found.parts]
        return dict(zip(found.numbers, map(parts.__getitem__, found.where)))

    def buffer(self, storage: Storage) -> np.ndarray:
        """The storage's bytes."""
        return self._buffers[storage.number]


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
