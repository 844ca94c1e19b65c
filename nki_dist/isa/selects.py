"""nisa.range_select and select_reduce: elements that stay or are filled, with a row maximum."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.dtypes import ALL, bool_, float32, int8, int16, int32, tfloat32, uint8, uint16, uint32
from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import COMMANDS, accumulate, read_out, summed
from nki_dist.isa.alu import ALU, SELECT_REDUCE
from nki_dist.isa.checks import (
    number_or_column,
    one_in_psum,
    one_per_partition,
    same_tile,
    unpacked,
)
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import OPTIMISTIC, Effects, State
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Kit, per_partition
from nki_dist.isa.operands import FLAG, Choice, Custom, Number, Op, read, write
from nki_dist.isa.rows import column, private_rows
from nki_dist.isa.spec import Arch, Cost, Instruction, Operation, instruction, op
from nki_dist.isa.timing_rules import issue_cycles, pair_cycles, per_element
from nki_dist.ops.arrays import copy_where
from nki_dist.ops.function import copy

FP32_MIN = float(np.finfo(np.float32).min)
_COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
_FLOATS = tuple(d for d in ALL if d.is_float)
_LAST = 2**24  # integers up to here are exact in float32


def _fill(name: str, value: Any) -> float:
    """The one value the hardware fills with."""
    if value is ... or value is None:
        return FP32_MIN
    if isinstance(value, (int, float, np.number)):
        with np.errstate(all="ignore"):
            if np.float32(value) == np.float32(FP32_MIN):
                return FP32_MIN
    raise wrong_value(name, value, f"float32's lowest number ({FP32_MIN})", code="argument-choice")


@instruction(
    engines="vector",
    effects=Effects(OPTIMISTIC, partial=False, bits=None, state=State.SUMS),
    min_generation=3,
    checks=[
        same_tile("dst on_true_tile"),
        unpacked("dst reduce_res"),
        one_per_partition("bound0 bound1 reduce_res", "on_true_tile"),
    ],
    cost=per_element("dst", share="range_select_passes", flops=4),
)
def range_select(
    dst=write(),
    on_true_tile=read(dtypes=_FLOATS),
    comp_op0=Op(_COMPARISONS),
    comp_op1=Op(_COMPARISONS),
    bound0=read(dtypes=(float32,)),
    bound1=read(dtypes=(float32,)),
    reduce_cmd=Choice(reduce_cmd, COMMANDS).default(reduce_cmd.reset_reduce),
    reduce_res=write(optional=True).default(None),
    reduce_op=Op(SELECT_REDUCE).default("maximum"),
    range_start=Number(integer=True).default(0),
    on_false_value=Custom(_fill).default(...),
    name=None,
):
    """Column j stays if `j + range_start` fulfils both comparisons, else becomes float32's lowest.

    Args:
        dst, on_true_tile: tiles with the same partitions and elements per partition; on_true_tile
            has a float type.
        comp_op0, comp_op1: nl.equal, less, less_equal, greater or greater_equal; the column's
            number is the left side.
        bound0, bound1: (P, 1) float32 tiles.
        reduce_cmd: what happens to the accumulator registers, which collect row maxima.
        reduce_res: (P, 1) tile that receives the registers.
        reduce_op: nl.maximum.
        range_start: an int; the last column's number may not exceed 2**24.
        on_false_value: float32's lowest number, the only one the hardware has.

    Raises:
        NkiValidationError: shapes, dtypes or numbers don't fit.
    """
    return locals()


@range_select.check
def _check(i: Instruction, arch: Arch) -> None:
    data = i["on_true_tile"]
    first, last = i["range_start"], i["range_start"] + data.free_size - 1
    if max(abs(first), abs(last)) > _LAST:
        message = (
            f"columns are numbered {first} to {last}; allowed: up to {_LAST}, exact in float32"
        )
        raise invalid(message, code="index-exact", got=last, most=_LAST)


@range_select.meaning
def _range_select_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    data = i["on_true_tile"]
    work = b.staged(kit, i["dst"], data)
    out = work.out
    first = i["range_start"]
    numbers = np.arange(first, first + data.free_size, dtype=np.float32)
    numbers = numbers.reshape(1, *out.shape[1:])
    bounds = [kit.view(per_partition(i[n], out.ndim)) for n in ("bound0", "bound1")]
    keep, other = kit.scratch(out.shape, bool), kit.scratch(out.shape, bool)
    work.ops.extend(
        [
            op(ALU[i["comp_op0"]].f32, numbers, bounds[0], keep),
            op(ALU[i["comp_op1"]].f32, numbers, bounds[1], other),
            op(np.logical_and, keep, other, keep),
            op(np.logical_not, keep, keep),
            *([op(copy, out, work.x)] if work.x is not out else []),
            op(copy_where, out, np.float32(FP32_MIN), keep),
        ]
    )
    return summed(i, kit, data, work, ALU[i["reduce_op"]], i["reduce_cmd"])


_VALUES = tuple(d for d in ALL if not d.is_mx and d not in (tfloat32, int32, uint32))
_COMMANDS = (reduce_cmd.idle, reduce_cmd.reduce, reduce_cmd.reset_reduce)


@instruction(
    engines="vector",
    effects=Effects(OPTIMISTIC, partial=False, bits=None, state=State.SUMS),
    checks=[
        same_tile("dst predicate on_true"),
        one_in_psum("predicate on_true"),
        number_or_column("on_false", "on_true"),
        one_per_partition("reduce_res", "on_true"),
        unpacked("dst on_false"),
    ],
)
def select_reduce(
    dst=write(),
    predicate=read(dtypes=(bool_, int8, int16, uint8, uint16)),
    on_true=read(dtypes=_VALUES),
    on_false=read(scalar=True),
    reduce_res=write(dtypes=_FLOATS, optional=True).default(None),
    reduce_cmd=Choice(reduce_cmd, _COMMANDS).default(reduce_cmd.idle),
    reduce_op=Op(SELECT_REDUCE).default("maximum"),
    reverse_pred=FLAG.default(False),
    name=None,
):
    """`dst = on_true where predicate isn't 0, else on_false`, and optionally the row maximum.

    Args:
        dst, predicate, on_true: tiles with the same partitions and elements per partition;
            predicate and on_true not both in PSUM.
        predicate: 8- or 16-bit integers; the documented examples also pass booleans.
        on_true: any type but tfloat32, int32 and uint32.
        on_false: a number or a (P, 1) tile.
        reduce_res: (P, 1) float tile that receives the accumulator registers.
        reduce_cmd: idle, reset_reduce or reduce.
        reduce_op: nl.maximum.
        reverse_pred: choose on_true where predicate is 0.

    Values are float32 in between (exact for every allowed type) and rounded to `dst.dtype`.
    With idle the registers keep their values; the documentation leaves that open.

    Raises:
        NkiValidationError: shapes, dtypes or memories don't fit.
    """
    return locals()


@select_reduce.meaning
def _select_reduce_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    data, cmd = i["on_true"], i["reduce_cmd"]
    values, load = private_rows(kit, data)
    other, load_other = column(kit, i["on_false"])
    predicate = kit.view(i["predicate"])
    mask = kit.scratch(predicate.shape, bool)
    test = np.not_equal if i["reverse_pred"] else np.equal
    total = accumulate(kit, "vector", data, values, ALU[i["reduce_op"]], cmd)
    return [
        load,
        *load_other,
        op(test, predicate, 0, mask),
        op(copy_where, values, other, mask.reshape(values.shape)),
        kit.save(i["dst"], values),
        *total,
        *read_out(i, kit, data),
    ]


@select_reduce.cost
def _select_reduce_cost(i: Instruction, arch: Arch) -> Cost:
    # No figure is published; it reads two tiles, as tensor_copy_predicated does.
    cycles = pair_cycles(i["dst"], i["on_true"], i["predicate"], arch, modes=False)
    return Cost(cycles=issue_cycles(cycles, arch), flops=2 * i["dst"].size, known=False)
