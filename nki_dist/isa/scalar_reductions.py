"""nisa.tensor_scalar_reduce and tensor_scalar_cumulative: an operator, then rows are reduced."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist import dtypes as d
from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import initial_value, registers, summed
from nki_dist.isa.alu import ALU, CUMULATIVE, TENSOR_SCALAR_REDUCE
from nki_dist.isa.checks import one_per_partition, same_tile, tile_dtype, unpacked
from nki_dist.isa.effects import Effects, State, elementwise, scan
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.operands import FLAG, Choice, Op, read, write
from nki_dist.isa.reductions import FOLDS
from nki_dist.isa.rows import column, private_rows
from nki_dist.isa.spec import Arch, Instruction, Kit, instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, is_array, op

_COMMANDS = (
    reduce_cmd.reset_reduce,
    reduce_cmd.reduce,
    reduce_cmd.load_reduce,
)


@instruction(
    engines="vector",
    effects=Effects(elementwise("data operand0"), partial=False, bits=None, state=State.SUMS),
    checks=[
        same_tile("dst data"),
        b.operand("operand0", "op0", "data"),
        b.available("op0"),
        unpacked("dst data operand0 reduce_res"),
        one_per_partition("reduce_res", "data"),
        initial_value("reduce_init", "data"),
    ],
    cost=per_element("dst", flops=2, sums=lambda i: True),
)
def tensor_scalar_reduce(
    dst=write(indirect=16),
    data=read(indirect=16),
    op0=Op(b.ARITHMETIC),
    operand0=read(scalar=True, optional=True),
    reduce_op=Op(TENSOR_SCALAR_REDUCE),
    reduce_res=write(optional=True).default(None),
    reverse0=FLAG.default(False),
    reduce_cmd=Choice(reduce_cmd, _COMMANDS).default(reduce_cmd.reset_reduce),
    reduce_init=read(scalar=True, optional=True).default(None),
    reduce_res_negate=FLAG.default(False),
    name=None,
):
    """`dst = data op0 operand0`, and each row of that reduced into the accumulator registers.

    Args:
        dst, data: tiles with the same partitions and elements per partition.
        op0: an arithmetic operator.
        operand0: a number or a (P, 1) tile; None or 0 if op0 is unary.
        reduce_op: add, multiply, maximum or minimum.
        reduce_res: (P, 1) tile that receives the registers, or None to leave the result there.
        reverse0: not supported by the instruction; False.
        reduce_cmd: reset_reduce, reduce (go on) or load_reduce (start from reduce_init).
        reduce_init: a number or (P, 1) float32 tile, with load_reduce only.
        reduce_res_negate: write the registers with the other sign; they keep theirs.

    Computed in float32; values are reduced before their rounding to `dst.dtype`.

    Raises:
        NkiValidationError: shapes, dtypes, operators or reduction don't fit.
    """
    return locals()


@tensor_scalar_reduce.check
def _tensor_scalar_reduce_check(i: Instruction, arch: Arch) -> None:
    if i["reverse0"]:
        message = "reverse0=True; allowed: False (the instruction lacks it)"
        raise invalid(message, code="engine-lacks")


@tensor_scalar_reduce.meaning
def _tensor_scalar_reduce_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    work = b.staged(kit, i["dst"], i["data"], b.Stage(ALU[i["op0"]], i["operand0"]))
    alu = ALU[i["reduce_op"]]
    return summed(i, kit, i["data"], work, alu, i["reduce_cmd"], i["reduce_init"])


_FLOATS = (d.bfloat16, d.float16, d.float32, d.float8_e4m3, d.float8_e4m3fn, d.float8_e5m2)
_DTYPES = (*_FLOATS, d.int8, d.int16, d.uint8, d.uint16)


@instruction(
    engines="vector",
    effects=Effects(scan("src imm0"), partial=False, bits=None, state=State.SUMS),
    checks=[
        same_tile("dst src"),
        b.operand("imm0", "op0", "src"),
        tile_dtype("imm0", d.float32),
        b.available("op0"),
    ],
    cost=per_element("dst", flops=2, known=False),  # in one pass
)
def tensor_scalar_cumulative(
    dst=write(dtypes=_DTYPES, indirect=16),
    src=read(dtypes=_DTYPES, indirect=16),
    op0=Op(b.ARITHMETIC),
    op1=Op(CUMULATIVE),
    imm0=read(scalar=True, optional=True),
    imm1=read(scalar=True, optional=True).default(None),
    reduce_cmd=Choice(reduce_cmd, _COMMANDS).default(reduce_cmd.reset_reduce),
    name=None,
):
    """`r[i] = (src[i] op0 imm0) op1 r[i-1]` along each partition, `dst = r`.

    Args:
        dst, src: tiles with the same partitions and elements per partition; no 32-bit integers.
        op0: an arithmetic operator.
        op1: add, subtract, multiply, maximum or minimum.
        imm0: a number or a (P, 1) float32 tile; None or 0 if op0 is unary.
        imm1: where r starts with load_reduce; other commands ignore it.
        reduce_cmd: reset_reduce starts from op1's neutral value (0 for subtract), reduce from the
            engine's accumulator registers. They hold the last r afterwards.

    Subtract is value minus r, as the documented pseudocode has it.

    Raises:
        NkiValidationError: shapes, dtypes, operators or the start value don't fit.
    """
    return locals()


@tensor_scalar_cumulative.check
def _tensor_scalar_cumulative_check(i: Instruction, arch: Arch) -> None:
    if i["reduce_cmd"] is reduce_cmd.load_reduce:  # documented examples pass it with others, too
        initial_value("imm1", "src")(i, arch)


@tensor_scalar_cumulative.meaning
def _tensor_scalar_cumulative_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    op0, op1, cmd = ALU[i["op0"]], ALU[i["op1"]], i["reduce_cmd"]
    values, load = private_rows(kit, i["src"])
    imm0, load0 = column(kit, i["imm0"]) if op0.arity == 2 else (None, [])
    loads = cmd is reduce_cmd.load_reduce
    imm1, load1 = column(kit, i["imm1"] if loads else 0)
    held = registers(kit, "vector", i["src"])
    start = kit.scratch(values.shape[:1])
    first: Any = np.float32(0 if op1.name == "subtract" else op1.identity)
    if cmd is reduce_cmd.reduce:
        first = held
    elif loads:
        first = imm1[:, 0] if is_array(imm1) else imm1
    return [
        load,
        *load0,
        *load1,
        b.apply(op0, values, imm0, values),
        op(copy, start, first),
        op(_run, start, op1.name, values),
        op(copy, held, values[:, -1]),
        kit.save(i["dst"], values),
    ]


@function(reads="start values", writes="values", name="running")
def _run(start: np.ndarray, operator: str, values: np.ndarray) -> None:
    """Each element of a row becomes what the operator makes of it and all before it."""
    f32, fold = ALU[operator].f32, FOLDS.get(operator)
    f32(values[:, 0], start, values[:, 0])
    if fold is not None:
        fold.accumulate(values, axis=-1, out=values)
        return
    for n in range(1, values.shape[1]):
        f32(values[:, n], values[:, n - 1], values[:, n])
