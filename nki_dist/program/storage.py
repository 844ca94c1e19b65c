"""A block of memory that tensors are views of.

Every `nl.ndarray` has a storage of its own: kernels reuse `address=` on purpose and live ranges
interleave, so the address serves capacity and overlap checks only and never aliases data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nki_dist.dtypes import DType
from nki_dist.program.memory import MemoryRegion


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def _layout(
    shape: tuple[int, ...], itemsize: int, on_chip: bool
) -> tuple[tuple[int, ...], int, int]:
    """Strides, bytes, and bytes of a partition: kernels allocate the same tiles again and again."""
    strides = contiguous_strides(shape)
    nbytes = itemsize
    for n in shape:
        nbytes *= n
    # On chip, the bytes of one partition; in HBM, all of them.
    return strides, nbytes, strides[0] * itemsize if on_chip else nbytes


@dataclass(slots=True, eq=False, repr=False)
class Storage:
    """One allocation.

    On-chip storages have shape (partitions, ...); the bytes of a partition are contiguous.

    Attributes:
        number: position in the program's table of storages.
        region: memory it lives in.
        name: given by the kernel, or "".
        called: what the kernel's source calls it, or ""; for messages only.
        shape, dtype: as allocated; views may differ.
        role: "input" (a kernel argument), "shared" (matched between cores by `index`), "constant"
            (shared, with `data`), "local" (this core's SBUF, PSUM or private HBM).
        index: for "input" the argument's number, for "shared"/"constant" the number in the
            sequence of shared allocations, which is the same on every core.
        address: (partition, byte) given by the kernel or chosen by the allocator, or None.
        placed: True if the kernel gave the address.
        first, last: ordinals of the first and last instruction that touch it (-1: none).
        strides: elements between neighbours of each dimension as allocated (row-major).
        nbytes: size of the whole storage.
        partition_bytes: bytes in each partition (on chip), or all bytes (HBM).
        written: True once some instruction writes it; of an argument, of any core.
    """

    number: int
    region: MemoryRegion
    shape: tuple[int, ...]
    dtype: DType
    name: str = ""
    role: str = "local"
    index: int = -1
    address: tuple[int, int] | None = None
    location: Any = None
    data: bytes | None = None
    called: str = field(default="", init=False)
    placed: bool = field(init=False)
    first: int = field(default=-1, init=False)
    last: int = field(default=-1, init=False)
    written: bool = field(default=False, init=False)
    strides: tuple[int, ...] = field(init=False)
    nbytes: int = field(init=False)
    partition_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.placed = self.address is not None
        self.strides, self.nbytes, self.partition_bytes = _layout(
            self.shape, self.dtype.itemsize, self.region.on_chip
        )

    @property
    def partitions(self) -> int:
        return self.shape[0] if self.region.on_chip else 1

    @property
    def key(self) -> tuple[str, int]:
        """Its role and index: the same on every core, for what all cores see."""
        return self.role, self.index

    @property
    def title(self) -> str:
        """Its name, what the source calls it, or its number."""
        return self.name or self.called or f"t{self.number}"

    @property
    def label(self) -> str:
        """How messages call it."""
        text = "x".join(map(str, self.shape))
        return f"{self.title} ({text} {self.dtype} in {self.region.value})"

    def __repr__(self) -> str:
        return f"<{self.label}>"
