"""nisa.select_reduce: chooses between a tile and a number by a mask, with a row maximum."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import ALL, bool_, int8, int16, int32, tfloat32, uint8, uint16, uint32
from nki_dist.isa.accumulate import accumulate, one_per_partition, read_out, reduces
from nki_dist.isa.alu import ALU, SELECT_REDUCE
from nki_dist.isa.checks import number_or_column, one_in_psum, same_tile, unpacked
from nki_dist.isa.effects import OPTIMISTIC, Effects, State
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import FLAG, Choice, Op, read, write
from nki_dist.isa.rows import column, private_rows, save_rows
from nki_dist.isa.spec import Cost, instruction
from nki_dist.isa.timing_rules import issue_cycles, pair_cycles
from nki_dist.ops.arrays import copy_where
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction

_VALUES = tuple(d for d in ALL if not d.is_mx and d not in (tfloat32, int32, uint32))
_FLOATS = tuple(d for d in ALL if d.is_float)
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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
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
        save_rows(kit, i["dst"], values),
        *(total if reduces(cmd) else []),
        *read_out(kit, "vector", data, i["reduce_res"]),
    ]


@select_reduce.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    # No figure is published; it reads two tiles, as tensor_copy_predicated does.
    cycles = pair_cycles(i["dst"], i["on_true"], i["predicate"], arch, modes=False)
    return Cost(cycles=issue_cycles(cycles, arch), flops=2 * i["dst"].size, known=False)
