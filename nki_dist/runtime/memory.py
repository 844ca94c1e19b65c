"""The memory of one core: buffers of every storage of a program, and of what it needs besides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from nki_dist.linking.memory import Places
from nki_dist.ops.alignment import aligned
from nki_dist.program import Program, Storage


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
        places: of its local storages.
        stack: bytes of the HBM stack that the core shares.
        offsets: where in the stack each input and shared storage lies, by (role, index). Inputs
            that all ranks have in common, with the role "common", lie in `common` instead.
        common: bytes that several stacks share; nobody writes them during a launch.
        pool: of host buffers that are the core's own; new ones if None.
        brief: of those that are only used while the core has its turn; `pool` if None.
        resident: bytes of tensors that stay in HBM between launches, by (role, index).
    """

    def __init__(
        self,
        program: Program,
        places: Places,
        stack: np.ndarray,
        offsets: Mapping[tuple[str, int], int],
        common: np.ndarray | None = None,
        pool: Pool | None = None,
        brief: Pool | None = None,
        resident: Mapping[tuple[str, int], np.ndarray] = MappingProxyType({}),
    ) -> None:
        per_core = pool or Pool()
        self._where = dict(zip(places.numbers, places.where))
        self._parts = self._allocated(places, per_core, brief or per_core)
        self._outside: dict[int, np.ndarray] = {}
        for s in places.outside:
            if s.role == "constant":
                self._outside[s.number] = np.frombuffer(s.data or b"", np.uint8)
            elif s.key in resident:
                self._outside[s.number] = resident[s.key][: s.nbytes]
            elif s.role == "input" and ("common", s.index) in offsets:
                assert common is not None
                at = offsets["common", s.index]
                self._outside[s.number] = common[at : at + s.nbytes]
            else:
                at = offsets[s.role, s.index]
                self._outside[s.number] = stack[at : at + s.nbytes]

    @staticmethod
    def _allocated(found: Places, per_core: Pool, brief: Pool) -> list[np.ndarray]:
        free = {pool: pool.offer() for pool in {per_core, brief}}
        buffers = []
        for size, is_brief in zip(found.sizes, found.brief):
            pool = brief if is_brief else per_core
            if free[pool][size]:
                buffers.append(free[pool][size].pop())
            else:
                buffers.append(aligned(size))
                pool.add(buffers[-1])
        return [buffers[number][:nbytes] for number, nbytes in found.parts]

    def part(self, number: int) -> np.ndarray:
        """The bytes of local storages that share them."""
        return self._parts[number]

    def outside(self, number: int) -> np.ndarray:
        """The bytes of a storage that isn't local."""
        return self._outside[number]

    def buffer(self, storage: Storage) -> np.ndarray:
        """The storage's bytes."""
        part = self._where.get(storage.number)
        return self._outside[storage.number] if part is None else self._parts[part]
