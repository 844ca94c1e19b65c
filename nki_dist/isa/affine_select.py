"""nisa.affine_select: keeps elements where an affine expression compares true with 0."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.dtypes.casts import converter
from nki_dist.isa import _pattern
from nki_dist.isa._pattern import Affine, check_pattern
from nki_dist.isa.alu import COMPARE
from nki_dist.isa.checks import same_partitions
from nki_dist.isa.dma_copy import move, through
from nki_dist.isa.effects import OPTIMISTIC, Effects, copies
from nki_dist.isa.kit import Array, Kit, overlaps
from nki_dist.isa.operands import SBUF, Custom, Number, Op, read, write
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import on_gpsimd
from nki_dist.ops.arrays import copy_where
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction

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
    checks=[same_partitions("dst on_true_tile")],
    cost=on_gpsimd("dst"),
)
def affine_select(
    dst=write(SBUF),
    pattern=Custom(_pattern.pattern),
    channel_multiplier=Custom(_pattern.int32),
    on_true_tile=read(SBUF),
    on_false_value=Number(),
    cmp_op=Op(COMPARE).default("equal"),
    offset=Custom(_pattern.offset).default(0),
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


@affine_select.check
def _check(i: Instruction, arch: Arch) -> None:
    check_pattern(i["pattern"], arch, dst=i["dst"], on_true_tile=i["on_true_tile"])


@affine_select.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, source = i["dst"], i["on_true_tile"]
    rejected, find = _rejected(i, kit)
    value = _value(i, kit)
    same = kit.congruent([dst, source])
    if same is None or overlaps(dst, source):
        kept, load = through(source, dst.dtype, kit)
        bits, target = kept.view(dst.dtype.raw).reshape(dst.shape), kit.raw(dst)
        where = rejected.reshape(dst.shape)
        return [*find, *load, op(copy, target, bits), op(copy_where, target, value, where)]
    target, where = kit.raw(same[0]), rejected.reshape(same[0].shape)
    replaced = op(copy_where, target, value, where)
    if source.same_elements(dst):
        return [*find, replaced]
    return [*find, *move(same[0], same[1], kit, whole=False), replaced]


def _value(i: Instruction, kit: Kit) -> Any:
    """The bits of what the elements become that aren't selected."""
    dtype, made = i["dst"].dtype, np.empty((), i["dst"].dtype.storage)
    converter(float32, dtype)(made, np.asarray(i["on_false_value"], np.float32))
    return made.view(dtype.raw)[()]


def _rejected(i: Instruction, kit: Kit) -> tuple[Array, list[Operation]]:
    """The mask of elements to overwrite, and what computes it."""
    partitions = i["dst"].shape[0]
    values = Affine(i["pattern"], i["offset"], partitions, i["channel_multiplier"])
    mask = kit.scratch((partitions, values.row.size), np.bool_)
    negated = _NEGATED[i["cmp_op"]]
    row, column = values.parts(np.int32)
    known = values.register is None and not values.wraps
    if known and abs(int(values.column[-1, 0])) < 2**31:
        return mask, [op(negated, row, -column, mask)]
    whole = kit.scratch(mask.shape, np.int32)
    return mask, [*values.fill(whole, kit), op(negated, whole, 0, mask)]
