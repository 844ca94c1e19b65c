"""nisa.tensor_copy and tensor_copy_predicated: copies of tiles, or of what a mask selects."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.dtypes import bool_, uint8, uint16, uint32
from nki_dist.errors import invalid
from nki_dist.isa.checks import check_unpacked, not_in_psum, one_in_psum, same_dtype, same_tile
from nki_dist.isa.dma_copy import move
from nki_dist.isa.effects import OPTIMISTIC, Effects, copies, elementwise, moves
from nki_dist.isa.enums import engine
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.memset import constant
from nki_dist.isa.operands import FLAG, read, update, write
from nki_dist.isa.spec import Access, Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import copy_cycles, issue_cycles
from nki_dist.ops.arrays import copy_where
from nki_dist.ops.function import copy


@instruction(
    former=("dtype",),
    engines="vector scalar gpsimd",
    effects=Effects(elementwise("src"), partial=False, bits=copies("dst src"), state=None),
    table="",
    checks=[same_tile("dst src"), not_in_psum("dst src")],
)
def tensor_copy(dst=write(indirect=16), src=read(indirect=16), engine=engine.unknown, name=None):
    """`dst = src` within SBUF and PSUM.

    Args:
        dst, src: tiles with the same partitions and elements per partition.
        engine: vector (default), scalar (not on NeuronCore-v2) or gpsimd (not with PSUM).

    Equal dtypes are copied bit by bit; others convert through float32 with one rounding.

    Raises:
        NkiValidationError: element counts or engine don't fit.
    """
    return locals()


@tensor_copy.check
def _tensor_copy_check(i: Instruction, arch: Arch) -> None:
    if i.engine == "gpsimd" and (is_indirect(i["dst"]) or is_indirect(i["src"])):
        message = "an .indirect() view with engine=gpsimd; allowed: vector, scalar or unknown"
        raise invalid(message, code="indirect-view")
    if i["dst"].dtype is not i["src"].dtype:
        check_unpacked(i, arch, ("dst", "src"))
    if i.engine == "scalar" and arch.generation < 3:
        message = (
            "the Scalar engine of NeuronCore-v2 has no tensor_copy; use nisa.activation(op=nl.copy)"
        )
        raise invalid(message, code="engine-lacks")


@tensor_copy.meaning
def _tensor_copy_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return move(i["dst"], i["src"], kit, whole=False)


@tensor_copy.cost
def _tensor_copy_cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=copy_cycles(i.engine, i["dst"], i["src"], arch))


@instruction(
    engines="vector",
    effects=Effects(OPTIMISTIC, partial=True, bits=moves("dst src"), state=None),
    checks=[
        same_tile("dst src predicate"),
        one_in_psum("src predicate"),
        same_dtype("src dst", "they must be equal"),
    ],
)
def tensor_copy_predicated(
    dst=update(indirect=16),
    src=read(scalar=True),
    predicate=read(dtypes=(bool_, uint8, uint16, uint32), indirect=16),
    reverse_pred=FLAG.default(False),
    name=None,
):
    """`dst = src` where `predicate` isn't 0; the other elements of dst stay.

    Args:
        dst, predicate: tiles with the same partitions and elements per partition.
        src: a tile like them with dst's dtype, or a number. Not in PSUM together with predicate.
        predicate: of type uint8, uint16 or uint32; the documented examples also pass booleans.
        reverse_pred: copy where predicate is 0 instead.

    Raises:
        NkiValidationError: shapes, dtypes or memories don't fit.
    """
    return locals()


@tensor_copy_predicated.check
def _predicated_check(i: Instruction, arch: Arch) -> None:
    src, dtype = i["src"], i["dst"].dtype
    if not isinstance(src, Access) and not dtype.is_float and src != int(src):
        message = f"src={src!r} for dtype {dtype}; allowed: whole numbers"
        raise invalid(message, code="argument-kind", got=src)


@tensor_copy_predicated.meaning
def _predicated_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src, predicate = i["dst"], i["src"], i["predicate"]
    test = np.equal if i["reverse_pred"] else np.not_equal
    mask = kit.scratch(predicate.shape, bool)
    ops = [op(test, kit.view(predicate), 0, mask)]
    value: Any
    if not isinstance(src, Access):
        value = constant(src, dst.dtype)
    elif (same := kit.congruent([dst, src])) is not None:
        dst, value = same[0], kit.raw(same[1])
    else:  # dimensions cut across each other
        flat = kit.scratch(src.shape, src.dtype.raw)
        ops.append(op(copy, flat, kit.raw(src)))
        value = flat.reshape(dst.shape)
    return [*ops, op(copy_where, kit.raw(dst), value, mask.reshape(dst.shape))]


@tensor_copy_predicated.cost
def _predicated_cost(i: Instruction, arch: Arch) -> Cost:
    n = i["dst"].free_size
    tiles = [a for a in (i["src"], i["predicate"]) if isinstance(a, Access)]
    one_in_psum = any(a.region.value == "psum" for a in tiles)
    return Cost(cycles=issue_cycles(n if one_in_psum else 2 * n / arch.vector_width, arch))
