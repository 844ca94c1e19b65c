"""An access pattern: which elements of a storage an operand is, and in which order.

Offsets and strides count elements of the access's own dtype, which may reinterpret the storage's.
A dynamic part adds `value * stride` elements, where the value is known only at run time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from nki_dist.dtypes import DType
from nki_dist.program.memory import MemoryRegion
from nki_dist.program.storage import Storage


def reach(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """How far elements of a pattern lie from its first, least and most, in elements."""
    low = high = 0
    for n, s in zip(shape, strides):
        if s >= 0:
            high += (n - 1) * s
        else:
            low += (n - 1) * s
    return low, high


@dataclass(slots=True, eq=False)
class Dynamic:
    """The run-time part of an access.

    Attributes:
        kind: "scalar" (one value moves the whole pattern), "vector" (one value per partition
            replaces the stride of the first dimension), "tensor" (tensor indirection, trn3).
        source: a VirtualRegister or an Access to the tensor that holds the value(s).
        stride: elements per unit of the value.
        limit: values must lie in [0, limit).
        dim: dimension of the indexed tensor the values index (for messages).
        within: (origin, size, period): the indexed dimension has `size` places, the first at offset
            `origin`, and lies again every `period` elements if that isn't 0. None where addresses
            count instead of values: `.ap` moves a pattern to any place of its tensor in HBM.
        extent: the same, where leaving the dimension is an error though the address is inside: of
            `.ap` in HBM under `strict`. Published kernels count through all blocks of a cache so.
    """

    kind: str
    source: Any
    stride: int
    limit: int
    dim: int = 0
    within: tuple[int, int, int] | None = None
    extent: tuple[int, int, int] | None = None

    def of(self, source: Any) -> Dynamic:
        """The same, by other values."""
        return replace(self, source=source)


@dataclass(slots=True, eq=False)
class Access:
    """`storage[offset + sum(index[d] * strides[d])]` for index in `shape`, read as `dtype`."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    dynamic: Dynamic | None = None

    @property
    def region(self) -> MemoryRegion:
        return self.storage.region

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def partitions(self) -> int:
        """Partitions touched (on-chip)."""
        return self.shape[0]

    @property
    def free_size(self) -> int:
        """Elements per partition (on-chip)."""
        return prod(self.shape[1:])

    @property
    def partition_stride(self) -> int:
        """Elements of this dtype in one partition of the storage (on-chip)."""
        return self.storage.partition_bytes // self.dtype.itemsize

    @property
    def start_partition(self) -> int:
        """First partition touched, within the storage (on-chip)."""
        row = self.partition_stride
        return self.offset // row if row else 0

    def span(self) -> tuple[int, int]:
        """First and one-past-last byte touched in the storage, dynamic part left out."""
        low, high = reach(self.shape, self.strides)
        size = self.dtype.itemsize
        return (self.offset + low) * size, (self.offset + high + 1) * size

    def starts(self, unit: int) -> int:
        """How many places, `unit` elements apart from here on, keep this within the storage."""
        left = self.storage.nbytes - self.span()[1]
        return max(left // (unit * self.dtype.itemsize) + 1, 0) if unit > 0 else 1

    def stays_in_row(self, moved: int = 0) -> bool:
        """Whether dimensions 1 and up stay within one partition (on chip), `moved` elements on."""
        size, row = self.dtype.itemsize, self.storage.partition_bytes
        column = (self.offset + moved) * size % row
        low, high = reach(self.shape[1:], self.strides[1:])
        return column + low * size >= 0 and column + (high + 1) * size <= row

    def same_elements(self, other: Access) -> bool:
        return (
            self.storage is other.storage
            and self.offset == other.offset
            and self.shape == other.shape
            and self.strides == other.strides
            and self.dtype is other.dtype
            and self.dynamic is None
            and other.dynamic is None
        )

    def __repr__(self) -> str:
        pattern = ", ".join(f"[{s}, {n}]" for s, n in zip(self.strides, self.shape))
        return f"{self.storage.title}+{self.offset}[{pattern}]:{self.dtype}"
