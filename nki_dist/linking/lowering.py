"""Lowers instructions to operations on places, which stand for arrays of any core's memory.

What belongs to a core and isn't memory (its registers, its rank, the way to the driver) is a slot,
filled when operations are bound.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.arch import Arch
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.randomness import seeded
from nki_dist.ops.alignment import padded
from nki_dist.ops.place import Place, Space
from nki_dist.program import Access, Storage
from nki_dist.program.storage import contiguous_strides

SCRATCH: Final[Space] = ("scratch", 0)


class Slot(Enum):
    """What an operation is given by the core that carries it out."""

    REGISTERS = "registers"
    RANK = "rank"
    WIRES = "wires"


class Lowering(Kit):
    """See the module's docstring.

    Args:
        arch: the platform.

    Attributes:
        named: whether the instruction that is lowered asked for a name, so that its operations are
            no other instruction's.
        used: bytes of scratch that it needs.
    """

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        self.wires, self.registers = Slot.WIRES, Slot.REGISTERS
        self.masks: dict[int, Any] = {}
        self._lent: dict[int, Place] = {}
        self.begin()

    def begin(self, waits: bool = False) -> None:
        self.named = False
        self.used = 0
        self._lent.clear()
        self.masks.clear()

    def _array(self, a: Access, dtype: np.dtype[Any]) -> Place:
        size, number = dtype.itemsize, a.storage.number
        strides = tuple([s * size for s in a.strides])
        if number < 0:
            return self._lent[number].moved(SCRATCH, a.offset * size).over(a.shape, strides, dtype)
        return Place(("storage", number), a.offset * size, a.shape, strides, dtype)

    def scratch(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Place:
        dtype = np.dtype(dtype)
        at, strides = self.used, tuple([s * dtype.itemsize for s in contiguous_strides(shape)])
        self.used += padded(max(prod(shape) * dtype.itemsize, 1))
        return Place(SCRATCH, at, shape, strides, dtype)

    def accumulators(self, engine: str) -> Place:
        return Place(
            ("accumulators", engine), 0, (self.arch.partitions,), (4,), np.dtype(np.float32)
        )

    def random(self, engine: str, first: Callable[[], np.ndarray]) -> Place:
        words = seeded(engine, 0, 1)
        shape = (words.shape[0], self.arch.partitions, words.shape[2])
        strides = tuple([4 * s for s in contiguous_strides(shape)])
        return Place(("random", engine), 0, shape, strides, words.dtype)

    def mask(self, storage: Storage) -> Array:
        if storage.number < 0:
            return self.masks[storage.number]
        return Place(("mask", storage.number), 0, (storage.nbytes // 2,), (1,), np.dtype(bool))

    @property
    def rank(self) -> Slot:
        return Slot.RANK
