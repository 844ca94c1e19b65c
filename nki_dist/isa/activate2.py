"""nisa.activate2: two operators, an activation function and a row reduction."""

from __future__ import annotations

from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import COMMANDS, one_per_partition, reduction_operator, summed
from nki_dist.isa.activation import FUNCTIONS
from nki_dist.isa.activations import activation as function_of
from nki_dist.isa.alu import ACTIVATE2_REDUCE, ALU
from nki_dist.isa.checks import number_or_column, same_dtype, same_tile, unpacked
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.operands import FLAG, Choice, Op, read, write
from nki_dist.isa.spec import Arch, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element, reads_sums

_PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
_OPS = ("multiply", "add", "subtract", "bypass")


@instruction(
    engines="scalar",
    effects=Effects(
        elementwise("data imm0 imm1 relu_param"), partial=False, bits=None, state=State.SUMS
    ),
    table="op",
    min_generation=4,
    checks=[
        same_tile("dst data"),
        number_or_column("relu_param", "data"),
        one_per_partition("reduce_res", "data"),
        unpacked("dst data imm0 imm1 relu_param reduce_res"),
        same_dtype("imm0 imm1", "they must be equal"),
        reduction_operator("reduce_op", ", ".join(sorted(ACTIVATE2_REDUCE))),
    ],
    cost=per_element("dst", flops=4, known=False, sums=reads_sums),
)
def activate2(
    dst=write(indirect=16),
    op=Op(FUNCTIONS),
    data=read(indirect=16),
    imm0=read(scalar=True, optional=True),
    imm1=read(scalar=True, optional=True),
    op0=Op(_OPS, optional=True),
    op1=Op(_OPS, optional=True),
    relu_param=read(scalar=True).default(0.0),
    reverse0=FLAG.default(False),
    reverse1=FLAG.default(False),
    reduce_op=Op(ACTIVATE2_REDUCE, optional=True).default(None),
    reduce_res=write(optional=True).default(None),
    reduce_cmd=Choice(reduce_cmd, COMMANDS).default(reduce_cmd.idle),
    name=None,
):
    """`dst = op((data op0 imm0) op1 imm1)`, and optionally a reduction of each row.

    Args:
        dst, data: tiles with the same partitions and elements per partition.
        op: an activation function.
        imm0, imm1: numbers or (P, 1) tiles, of one dtype if both are tiles.
        op0, op1: multiply with add, subtract or bypass; add, subtract or bypass with bypass.
        relu_param: a number or (P, 1) tile for functions that have a parameter.
        reverse0, reverse1: imm is the left side; not with bypass.
        reduce_op: add, maximum, minimum, abs_max or abs_min, needed if reduce_cmd reduces.
        reduce_res: (P, 1) tile that receives the Scalar engine's accumulator registers.
        reduce_cmd: idle, reset, reduce or reset_reduce.

    Computed in float32; values are reduced before their rounding to `dst.dtype`.

    Raises:
        NkiValidationError: platform, shapes, dtypes, operators or reduction don't fit.
    """
    return locals()


def _ops(i: Instruction) -> tuple[str, str]:
    return i["op0"] or "bypass", i["op1"] or "bypass"


@activate2.check
def _operators(i: Instruction, arch: Arch) -> None:
    ops = _ops(i)
    if ops not in _PAIRS:
        message = f"op0={ops[0]}, op1={ops[1]}; allowed pairs: " + ", ".join(
            f"({first}, {second})" for first, second in _PAIRS
        )
        raise invalid(message, code="operator-pair")
    for n, operator in zip("01", ops, strict=True):
        if operator != "bypass":
            b.operand(f"imm{n}", f"op{n}", "data")(i, arch)
        elif i[f"reverse{n}"]:
            message = f"reverse{n}=True with op{n}=bypass; allowed: False"
            raise invalid(message, code="argument-combination")


@activate2.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    data, function = i["data"], function_of(i["op"])
    stages = [
        b.Stage(ALU[operator], i["imm" + n], i["reverse" + n])
        for n, operator in zip("01", _ops(i), strict=True)
        if operator != "bypass"
    ]
    slope = i["relu_param"] if function.takes_param else None
    work = b.staged(kit, i["dst"], data, *stages, later=slope)
    params = (work.later,) if function.takes_param else ()
    work.ops.append(op(function.f32, work.x, work.out, *params))
    return summed(i, kit, data, work, ALU[i["reduce_op"] or "add"], i["reduce_cmd"])
