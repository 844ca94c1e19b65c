"""nisa.iota and affine_select: an affine sequence of integers is written, or compared with 0.

Invariant: values are 32-bit integers and wrap, as GpSimd computes them. Follows `nisa.iota`.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.dtypes import float32, int32, uint32
from nki_dist.errors import NkiValidationError, invalid
from nki_dist.isa.alu import COMPARE
from nki_dist.isa.checks import check_range, rule, same_partitions
from nki_dist.isa.described import wrong_value
from nki_dist.isa.dma_copy import move
from nki_dist.isa.effects import NOTHING_ELSE, OPTIMISTIC, Effects, copies
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.matmul import flat
from nki_dist.isa.memset import bits_of
from nki_dist.isa.operands import SBUF, Custom, Number, Op, read, write
from nki_dist.isa.spec import Arch, instruction
from nki_dist.isa.timing_rules import on_gpsimd
from nki_dist.ops.arrays import copy_where
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, RegisterNumber, op
from nki_dist.program import Instruction, VirtualRegister

_INT32 = (-(2**31), 2**31 - 1)


def as_pattern(name: str, value: Any) -> list[list[int]]:
    """The role of `pattern`: [step, count] of each dimension, outermost first."""
    try:
        pairs = [[step.__index__(), count.__index__()] for step, count in value]
    except (TypeError, ValueError, AttributeError):
        raise wrong_value(
            name, value, "a list of up to four [step, count], ints", code="pattern"
        ) from None
    if any(count < 1 for _, count in pairs):
        raise invalid(f"{name}={pairs}; every count must be at least 1", code="pattern")
    return pairs


def as_int32(name: str, value: Any) -> int:
    """The role of integers that the engine holds in 32 bits."""
    try:
        number = value.__index__()
    except (TypeError, AttributeError):
        raise wrong_value(name, value, "an int known when traced", code="argument-kind") from None
    check_range(name, number, *_INT32)
    return number


def as_offset(name: str, value: Any) -> int | VirtualRegister:
    """The role of `offset`, which may be known only at run time."""
    if isinstance(value, VirtualRegister):
        return value.narrow(name)
    try:
        return as_int32(name, value)
    except NkiValidationError as error:
        error.message = error.message.replace("traced", "traced, or a register")
        raise


@rule
def fits_pattern(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """An access's dimensions at most, and as many values as each operand has per partition."""
    pairs, most = i["pattern"], arch.access_dims_max
    if not 1 <= len(pairs) <= most:
        message = f"pattern has {len(pairs)} dimensions; allowed: 1 to {most}"
        raise invalid(message, code="pattern", got=len(pairs), most=most)
    count = prod(n for _, n in pairs)
    for name in names:
        a = i[name]
        if a.free_size != count:
            message = (
                f"pattern {pairs} has {count} values, {name} has {a.free_size} elements per "
                f"partition (shape {a.shape}); must be equal"
            )
            raise invalid(message, code="shape-mismatch", got=count, allowed=a.free_size)


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


_EXACT_FLOAT = 2**24


@instruction(
    engines="gpsimd",
    effects=NOTHING_ELSE,
    checks=[fits_pattern("dst")],
    cost=on_gpsimd("dst"),
)
def iota(
    dst=write(SBUF),
    pattern=Custom(as_pattern),
    offset=Custom(as_offset).default(0),
    channel_multiplier=Custom(as_int32).default(0),
    name=None,
):
    """`dst[p, w, z, y, x] = offset + p * channel_multiplier + w * step_w + ... + x * step_x`.

    Args:
        dst: SBUF tile (P, ...), free dimensions flattened.
        pattern: up to four [step, count], outermost first; as many values as dst has elements per
            partition.
        offset: a 32-bit integer or a register.
        channel_multiplier: a 32-bit integer.

    Values are 32-bit integers that wrap, converted to `dst.dtype` at the end.

    Raises:
        NkiValidationError: the pattern doesn't fit dst.
    """
    return locals()


@iota.meaning
def _iota_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    values = Affine(i["pattern"], i["offset"], dst.shape[0], i["channel_multiplier"])
    view = flat(dst)
    integer = dst.dtype in (int32, uint32)
    small = max(abs(values.low), abs(values.high)) <= _EXACT_FLOAT
    static = values.register is None
    if static and view is not None and (integer or (dst.dtype is float32 and small)):
        number = np.uint32 if integer else np.float32
        row, column = values.parts(number)
        return [op(np.add, row, column, kit.view(view).view(number))]
    whole = kit.scratch((dst.shape[0], dst.free_size), np.int32)
    shaped, target = whole.reshape(dst.shape), kit.view(dst)
    if integer:
        change = op(copy, target.view(np.int32), shaped)
    else:
        change = op(kit.convert(int32, dst.dtype), target, shaped)
    return [*values.fill(whole, kit), change]


# The comparisons, negated: we overwrite where the predicate is false.
_NEGATED: Final[dict[str, np.ufunc]] = {
    "equal": np.not_equal,
    "not_equal": np.equal,
    "less": np.greater_equal,
    "less_equal": np.greater,
    "greater": np.less_equal,
    "greater_equal": np.less,
}


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=False, bits=copies("dst on_true_tile"), state=None),
    checks=[same_partitions("dst on_true_tile"), fits_pattern("dst on_true_tile")],
    cost=on_gpsimd("dst"),
)
def affine_select(
    dst=write(SBUF),
    pattern=Custom(as_pattern),
    channel_multiplier=Custom(as_int32),
    on_true_tile=read(SBUF),
    on_false_value=Number(),
    cmp_op=Op(COMPARE).default("equal"),
    offset=Custom(as_offset).default(0),
    name=None,
):
    """`dst = on_true_tile where cmp_op(affine, 0), else on_false_value`.

    Args:
        dst, on_true_tile: SBUF tiles with the same partitions and elements per partition.
        pattern, offset, channel_multiplier: the affine expression, as in `nisa.iota`.
        on_false_value: a number, taken as float32.
        cmp_op: a comparison of `nl`.

    Equal dtypes move bit by bit, others convert through float32; on_false_value is rounded once
    to `dst.dtype`.

    Raises:
        NkiValidationError: pattern and tiles don't fit.
    """
    return locals()


@affine_select.meaning
def _affine_select_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, source = i["dst"], i["on_true_tile"]
    rejected, find = _rejected(i, kit)
    moved = [] if source.same_elements(dst) else move(dst, source, kit, whole=False)
    value = bits_of(i["on_false_value"], dst.dtype)[()]
    where = rejected.reshape(dst.shape)
    return [*find, *moved, op(copy_where, kit.raw(dst), value, where)]


def _rejected(i: Instruction, kit: Kit) -> tuple[Array, list[Operation]]:
    """The mask of elements to overwrite, and what computes it."""
    partitions = i["dst"].shape[0]
    values = Affine(i["pattern"], i["offset"], partitions, i["channel_multiplier"])
    mask = kit.scratch((partitions, values.row.size), np.bool_)
    negated = _NEGATED[i["cmp_op"]]
    row, column = values.parts(np.int32)
    static = values.register is None and not values.wraps
    if static and abs(int(values.column[-1, 0])) < 2**31:
        return mask, [op(negated, row, -column, mask)]
    whole = kit.scratch(mask.shape, np.int32)
    return mask, [*values.fill(whole, kit), op(negated, whole, 0, mask)]
