"""Where a core's storages are while a program is linked and run.

Local storages (SBUF, PSUM, private HBM) whose lifetimes don't meet share host buffers, so a program
with a hundred thousand tiles needs as much memory as are alive at once. That is invisible: the
checks at compile time prove that no element is read before it is written, and storages where they
can't are poisoned when their life begins. For the same reason the programs of a core share buffers
(launches come one after the other), and so do the cores that run one after the other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from nki_dist.hbm.alignment import aligned, padded
from nki_dist.program import Program, Storage

Places: TypeAlias = "tuple[list[tuple[Storage, int]], list[int]]"  # see `places`


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
        pool: of host buffers for local storages; new ones if None.
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
    ) -> None:
        self._buffers: dict[int, np.ndarray] = {}
        for s in program.storages:
            if s.role == "constant":
                self._buffers[s.number] = np.frombuffer(s.data or b"", np.uint8)
            elif s.role == "input" and ("common", s.index) in offsets:
                assert common is not None
                at = offsets["common", s.index]
                self._buffers[s.number] = common[at : at + s.nbytes]
            elif s.role != "local":
                at = offsets[s.role, s.index]
                self._buffers[s.number] = stack[at : at + s.nbytes]
        self._place(places(program) if known is None else known, pool or Pool())

    def _place(self, found: Places, pool: Pool) -> None:
        where, sizes = found
        free = pool.offer()
        buffers = []
        for size in sizes:
            if free[size]:
                buffers.append(free[size].pop())
            else:
                buffers.append(aligned(size))
                pool.add(buffers[-1])
        parts: dict[tuple[int, int], np.ndarray] = {}  # storages at one place get one array
        for s, number in where:
            part = parts.get((number, s.nbytes))
            if part is None:
                part = parts[number, s.nbytes] = buffers[number][: s.nbytes]
            self._buffers[s.number] = part

    def buffer(self, storage: Storage) -> np.ndarray:
        """The storage's bytes."""
        return self._buffers[storage.number]


def places(program: Program) -> Places:
    """Which buffer each local storage is in, and the bytes of the buffers.

    Storages of one size whose lives don't meet are in the same one, the first that is free: so
    the rounds of a loop find the same places, as far as they can, and linking knows them again.
    """
    local = [s for s in program.storages if s.role == "local" and s.first >= 0]
    where: list[tuple[Storage, int]] = []
    sizes: list[int] = []
    free: dict[int, list[int]] = defaultdict(list)
    busy: list[tuple[int, int]] = []
    for s in sorted(local, key=lambda s: (s.first, s.number)):
        while busy and busy[0][0] < s.first:
            _, number = heapq.heappop(busy)
            heapq.heappush(free[sizes[number]], number)
        size = padded(s.nbytes)
        if free[size]:
            number = heapq.heappop(free[size])
        else:
            number = len(sizes)
            sizes.append(size)
        where.append((s, number))
        heapq.heappush(busy, (s.last, number))
    return where, sizes
