"""nisa.tensor_reduce and tensor_partition_reduce: over free dimensions, and over partitions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nki_dist.dtypes import bfloat16, float32
from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU, PARTITION_REDUCE, TENSOR_REDUCE
from nki_dist.isa.checks import check_elements, not_in_psum, same_free_size, same_partitions
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import Effects, Mask, flattened, of_one, tile_of, union
from nki_dist.isa.operands import FLAG, Custom, Op, read, write
from nki_dist.isa.reductions import SUMS, reduce, reduce_integers
from nki_dist.isa.rows import load_rows
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import issue_cycles, on_gpsimd
from nki_dist.ops.function import function


def _axes(name: str, value: Any) -> list[int]:
    """An int or a sequence of ints, as a list."""
    try:
        return [n.__index__() for n in (value if isinstance(value, (list, tuple)) else [value])]
    except AttributeError:
        raise wrong_value(name, value, "an int or a list of ints", code="axis") from None


@of_one
def _over_rows(i: Instruction, m: np.ndarray) -> Mask:
    """Trailing dimensions are reduced, so each result is the union of one run of elements."""
    partitions, free = tile_of(i)
    fits = m.shape[0] == partitions and m.size % (partitions * free) == 0
    return union(m.reshape(partitions, free, -1), 2) if fits else None


def _reduced_axes(i: Instruction) -> list[int]:
    rank = len(i["data"].shape)
    return sorted(a + rank if a < 0 else a for a in i["axis"])


def _check_axis(i: Instruction, arch: Arch) -> None:
    rank, axes = len(i["data"].shape), _reduced_axes(i)
    if not axes or axes != list(range(rank - len(axes), rank)) or axes[0] == 0:
        message = (
            f"axis={i['axis']} of a tile with {rank} dimensions; allowed: the last one or several "
            f"of dimensions 1 to {rank - 1}"
        )
        raise invalid(message, code="axis", got=i["axis"], least=1, most=rank - 1)


@instruction(
    engines="vector",
    effects=Effects(_over_rows("data"), partial=False, bits=None, state=None),
    checks=[
        _check_axis,
        same_partitions("dst data"),
        b.available("op"),
        b.operator_dtypes("dst data", "op"),
    ],
)
def tensor_reduce(
    dst=write(indirect=16),
    op=Op(TENSOR_REDUCE),
    data=read(indirect=16),
    axis=Custom(_axes),
    negate=FLAG.default(False),
    keepdims=FLAG.default(False),
    name=None,
):
    """`dst = op over axis of data`, per partition.

    Args:
        dst: tile with data's partitions and one element per row that is reduced.
        op: a reduction operator; bitwise ones take integer tiles of one width.
        axis: the last dimension, or the last few; never dimension 0.
        negate: change the sign of the result (arithmetic operators).
        keepdims: describes dst's shape only; its elements are the same.

    Arithmetic is float32 from the first element of a row to the last, several dimensions in the
    order of their elements, and the result is rounded once to `dst.dtype`. Sums of float32 have a
    device's bits (isa.reductions).

    Raises:
        NkiValidationError: axis, operator, shapes or dtypes don't fit.
    """
    return locals()


@tensor_reduce.check
def _rows(i: Instruction, arch: Arch) -> None:
    shape, dst = i["data"].shape, i["dst"]
    axes = _reduced_axes(i)
    left = prod(shape[1 : len(shape) - len(axes)])
    why = f"reducing dimensions {axes} of shape {shape} leaves {left}"
    check_elements("dst", dst, left, why, code="free-mismatch")


@tensor_reduce.check
def _dtypes(i: Instruction, arch: Arch) -> None:
    if i["negate"] and ALU[i["op"]].is_bitvec:
        message = f"negate with the bitwise nl.{i['op']}; allowed: arithmetic only"
        raise invalid(message, code="operator-dtype")


@tensor_reduce.meaning
def _tensor_reduce_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    alu, dst, data = ALU[i["op"]], i["dst"], i["data"]
    compute = data.dtype if alu.is_bitvec else float32
    rows, before = load_rows(kit, data, len(i["axis"]), compute, alu.name in SUMS)
    result = kit.scratch(rows.shape[:2], compute.storage)
    ops = [*before, op(reduce_integers if alu.is_bitvec else reduce, alu.name, rows, result)]
    if i["negate"]:
        ops.append(op(np.negative, result, result))
    into = b.as_dtype(dst, compute) if alu.is_bitvec else dst
    return [*ops, kit.save(into, result, compute)]


@tensor_reduce.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    n = i["data"].free_size
    half = i["data"].dtype is bfloat16 and i["dst"].dtype is bfloat16
    fast = half and ALU[i["op"]].name in ("add", "maximum")
    return Cost(cycles=issue_cycles(n / 2 if fast else n, arch), flops=i["data"].size)


@of_one
def _over_partitions(i: Instruction, m: np.ndarray) -> Mask:
    """Each result is the union of one column."""
    return union(flattened(m), 0)


def _one_row(i: Instruction, arch: Arch) -> None:
    if i["dst"].shape[0] != 1:
        message = f"dst has {i['dst'].shape[0]} partitions; allowed: 1"
        raise invalid(message, code="operand-shape", got=i["dst"].shape[0], allowed=1)


@instruction(
    engines="gpsimd",
    effects=Effects(_over_partitions("data"), partial=False, bits=None, state=None),
    checks=[
        _one_row,
        same_free_size("dst data"),
        not_in_psum("dst data"),
        b.operator_dtypes("dst data", "op"),
    ],
    cost=on_gpsimd("data", flops=1, known=False),
)
def tensor_partition_reduce(dst=write(), op=Op(PARTITION_REDUCE), data=read(), name=None):
    """`dst = op over the partitions of data`: one partition remains.

    Args:
        dst: tile (1, ...) in SBUF with data's number of elements per partition.
        op: add, average, maximum, bitwise_or or bitwise_and (the last two on integers).
        data: tile in SBUF.

    Arithmetic is float32, from the first partition to the last, rounded once to `dst.dtype`. The
    order on hardware isn't documented.

    Raises:
        NkiValidationError: shapes, dtypes or memories don't fit.
    """
    return locals()


@tensor_partition_reduce.meaning
def _tensor_partition_reduce_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    alu, dst, data = ALU[i["op"]], i["dst"], i["data"]
    compute = data.dtype if alu.is_bitvec else float32
    rows, load = load_rows(kit, data, compute=compute)
    result = kit.scratch(rows.shape[2:], compute.storage)
    into = b.as_dtype(dst, compute) if alu.is_bitvec else dst
    reduced = op(_reduce, rows[:, 0], alu.name, result)
    return [*load, reduced, kit.save(into, result, compute)]


@function(reads="rows", writes="result", name="reduce partitions")
def _reduce(rows: np.ndarray, operator: str, result: np.ndarray) -> None:
    """Rows (P, N) folded in order, as floats or as integers."""
    alu = ALU["add" if operator == "average" else operator]
    fold = alu.integer if alu.is_bitvec else alu.f32
    assert fold is not None
    np.copyto(result, rows[0])
    for row in rows[1:]:
        fold(result, row, result)
    if operator == "average":
        np.divide(result, np.float32(len(rows)), result)
