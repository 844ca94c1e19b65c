"""Affine patterns: the integer sequence that iota writes and affine_select compares with 0.

Invariant: values are 32-bit integers and wrap, as GpSimd computes them. Follows `nisa.iota`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.checks import check_range
from nki_dist.isa.described import wrong_value
from nki_dist.isa.kit import Array, Kit
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, RegisterNumber, op
from nki_dist.program import Access, VirtualRegister

_INT32 = (-(2**31), 2**31 - 1)


def pattern(name: str, value: Any) -> list[list[int]]:
    """The role of `pattern`: [step, count] of each dimension, outermost first."""
    try:
        pairs = [[step.__index__(), count.__index__()] for step, count in value]
    except (TypeError, ValueError, AttributeError):
        raise wrong_value(
            name, value, "a list of up to four [step, count], ints", code="pattern"
        ) from None
    if any(count < 1 for _, count in pairs):
        raise NkiValidationError(f"{name}={pairs}; every count must be at least 1", code="pattern")
    return pairs


def int32(name: str, value: Any) -> int:
    """The role of integers that the engine holds in 32 bits."""
    try:
        number = value.__index__()
    except (TypeError, AttributeError):
        raise wrong_value(name, value, "an int known when traced", code="argument-kind") from None
    check_range(name, number, *_INT32)
    return number


def offset(name: str, value: Any) -> int | VirtualRegister:
    """The role of `offset`, which may be known only at run time."""
    if isinstance(value, VirtualRegister):
        return value.narrow(name)
    try:
        return int32(name, value)
    except NkiValidationError as error:
        error.message = error.message.replace("traced", "traced, or a register")
        raise


def check_pattern(pairs: list[list[int]], arch: Arch, **operands: Access) -> None:
    """An access's dimensions at most, and as many values as each operand has per partition."""
    most = arch.access_dims_max
    if not 1 <= len(pairs) <= most:
        message = f"pattern has {len(pairs)} dimensions; allowed: 1 to {most}"
        raise NkiValidationError(message, code="pattern", numbers={"got": len(pairs), "most": most})
    count = prod(n for _, n in pairs)
    for name, a in operands.items():
        if a.free_size != count:
            raise NkiValidationError(
                f"pattern {pairs} has {count} values, {name} has {a.free_size} elements per "
                f"partition (shape {a.shape}); must be equal",
                code="shape-mismatch",
                numbers={"got": count, "allowed": a.free_size},
            )


class Affine:
    """`row[x] + column[p]`, the value at partition p and position x.

    An offset in a register counts as 0 here; `fill` adds its value.

    Attributes:
        row: values of partition 0, int64.
        column: what each partition adds, int64, shape (P, 1).
        low, high: smallest and largest value.
    """

    def __init__(
        self,
        pairs: list[list[int]],
        offset: int | VirtualRegister,
        partitions: int,
        multiplier: int,
    ) -> None:
        self.register = offset if isinstance(offset, VirtualRegister) else None
        row = np.full(1, 0 if self.register is not None else offset, np.int64)
        for step, count in pairs:
            row = (row[:, None] + step * np.arange(count, dtype=np.int64)).reshape(-1)
        self.row = row
        self.column = multiplier * np.arange(partitions, dtype=np.int64)[:, None]
        self.low = int(row.min() + self.column.min())
        self.high = int(row.max() + self.column.max())

    @property
    def wraps(self) -> bool:
        return self.low < _INT32[0] or self.high > _INT32[1]

    def parts(self, dtype: type) -> tuple[np.ndarray, np.ndarray]:
        """(row, column) in another type; integers wrap, and so does their sum."""
        return self.row.astype(dtype), self.column.astype(dtype)

    def fill(self, whole: Array, kit: Kit) -> list[Operation]:
        """What writes all values, as int32, into a (P, N) array."""
        row, column = self.parts(np.int32)
        if self.register is None:
            return [op(np.add, row, column, whole)]
        moved = kit.scratch(row.shape, np.int32)
        register = RegisterNumber(self.register.number)
        return [
            op(add_register, row, kit.registers, register, moved),
            op(np.add, moved, column, whole),
        ]


@function(reads="a register", writes="out", name="add register")
def add_register(a: np.ndarray, registers: list[int], register: int, out: np.ndarray) -> None:
    """The sum of integers and what a register holds, which wraps."""
    start = np.uint32(registers[register] & 0xFFFFFFFF)
    np.add(a, start.view(np.int32), out)
