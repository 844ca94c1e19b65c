"""nisa.activation, activation_reduce, activate2, exponential: functions of data, sums of rows."""

from __future__ import annotations

from nki_dist import dtypes as d
from nki_dist.dtypes import float32, tfloat32
from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import COMMANDS, initial_value, reduction_operator, summed
from nki_dist.isa.activations import ACTIVATIONS
from nki_dist.isa.activations import activation as function_of
from nki_dist.isa.alu import ACTIVATE2_REDUCE, ACTIVATION_REDUCE, ALU
from nki_dist.isa.checks import (
    dimensions,
    number_or_column,
    one_per_partition,
    same_dtype,
    same_tile,
    tile_dtype,
    unpacked,
)
from nki_dist.isa.dma_copy import move
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import last_writes
from nki_dist.isa.operands import FLAG, Choice, Op, read, write
from nki_dist.isa.spec import Arch, Instruction, Kit, Operation, instruction, op, require_generation
from nki_dist.isa.timing_rules import per_element, reads_sums
from nki_dist.program import Access

FUNCTIONS = frozenset([*ACTIVATIONS, "absolute", "positive"])


def _check_bias(i: Instruction, arch: Arch) -> None:
    bias = i["bias"]
    if isinstance(bias, Access) and bias.dtype is tfloat32:
        raise invalid("bias has dtype tfloat32; allowed: every other dtype", code="dtype-operand")
    if bias is not None and not isinstance(bias, Access):
        require_generation(arch, 3, f"a number as bias (got {bias!r}; a (P, 1) tile does it)")


def _check_function(i: Instruction, arch: Arch) -> None:
    require_generation(arch, function_of(i["op"]).generation, f"nl.{i['op']}")


OPERANDS = (  # of activation_reduce, too
    same_tile("dst data"),
    unpacked("dst data bias scale reduce_res"),
    number_or_column("scale bias", "data"),
    tile_dtype("scale", float32),
    _check_bias,
    one_per_partition("reduce_res", "data"),
    _check_function,
)


@instruction(
    engines="scalar",
    effects=Effects(elementwise("data bias scale"), partial=False, bits=None, state=State.SUMS),
    table="op",
    checks=[*OPERANDS, reduction_operator("reduce_op", "nl.add")],
    cost=per_element("dst", flops=3, sums=reads_sums),
)
def activation(
    dst=write(indirect=16),
    op=Op(FUNCTIONS),
    data=read(indirect=16),
    bias=read(scalar=True, optional=True).default(None),
    scale=read(scalar=True).default(1.0),
    reduce_op=Op(ACTIVATION_REDUCE, optional=True).default(None),
    reduce_res=write(optional=True).default(None),
    reduce_cmd=Choice(reduce_cmd, COMMANDS).default(reduce_cmd.idle),
    name=None,
):
    """`dst = op(data * scale + bias)`, and optionally the sum of each row of the result.

    Args:
        dst, data: tiles with the same partitions and elements per partition.
        op: an activation function.
        bias: a (P, 1) tile of any type but tfloat32, a number (NeuronCore-v3 on), or nothing.
        scale: a number or a (P, 1) float32 tile.
        reduce_op: nl.add, needed if reduce_cmd reduces.
        reduce_res: (P, 1) tile that receives the engine's accumulator registers.
        reduce_cmd: reset, reduce, reset_reduce or idle: what happens to the registers, which keep
            their values from one instruction to the next.

    Everything is float32; the sum is over values before their rounding to `dst.dtype`.

    Raises:
        NkiValidationError: shapes, dtypes or reduction don't fit.
    """
    return locals()


@activation.meaning
def _activation_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return activate(i, kit, i["reduce_cmd"])


def activate(i: Instruction, kit: Kit, cmd: reduce_cmd) -> list[Operation]:
    """The work of activation and activation_reduce."""
    data, result = i["data"], i["reduce_res"]
    if cmd is reduce_cmd.idle and result is None and _is_copy(i):
        return move(i["dst"], data, kit, whole=False)
    scale, bias = i["scale"], i["bias"]
    scaled = isinstance(scale, Access) or scale != 1
    # Adding 0 changes the sign of a zero only, which a reciprocal would show.
    moved = isinstance(bias, Access) or (bias is not None and (bias != 0 or scaled))
    stages = [b.Stage(ALU["multiply"], scale)] if scaled else []
    stages += [b.Stage(ALU["add"], bias)] if moved else []
    work = b.staged(kit, i["dst"], data, *stages)
    work.ops.append(op(function_of(i["op"]).f32, work.x, work.out))
    return summed(i, kit, data, work, ALU["add"], cmd)


def _is_copy(i: Instruction) -> bool:
    """It moves floats of one type, which float32 holds exactly: no need to go there and back."""
    same = i["dst"].dtype is i["data"].dtype and i["dst"].dtype.is_float
    plain = not isinstance(i["scale"], Access) and i["scale"] == 1 and i["bias"] is None
    return same and plain and i["op"] == "copy" and last_writes(i["dst"]) is None


@instruction(
    engines="scalar",
    effects=Effects(elementwise("data bias scale"), partial=False, bits=None, state=State.SUMS),
    table="op",
    checks=OPERANDS,
    cost=per_element("dst", flops=4, sums=lambda i: True),
)
def activation_reduce(
    dst=write(indirect=16),
    op=Op(FUNCTIONS),
    data=read(indirect=16),
    reduce_op=Op(ACTIVATION_REDUCE),
    reduce_res=write(optional=True),
    bias=read(scalar=True, optional=True).default(None),
    scale=read(scalar=True).default(1.0),
    name=None,
):
    """`dst = op(data * scale + bias)`, `reduce_res = sum of each row of that`.

    The same as nisa.activation with reduce_cmd.reset_reduce; see there.

    Args:
        dst, data: tiles with the same partitions and elements per partition.
        op: an activation function.
        reduce_op: nl.add.
        reduce_res: (P, 1) tile, or None to leave the sums in the registers.
        bias: a (P, 1) tile, a number (NeuronCore-v3 on), or nothing.
        scale: a number or a (P, 1) float32 tile.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@activation_reduce.meaning
def _activation_reduce_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return activate(i, kit, reduce_cmd.reset_reduce)


_PAIRS = (
    ("multiply", "add"),
    ("multiply", "subtract"),
    ("multiply", "bypass"),
    ("add", "bypass"),
    ("subtract", "bypass"),
    ("bypass", "bypass"),
)
_STAGES = ("multiply", "add", "subtract", "bypass")


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
    op0=Op(_STAGES, optional=True),
    op1=Op(_STAGES, optional=True),
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


def _activate2_ops(i: Instruction) -> tuple[str, str]:
    return i["op0"] or "bypass", i["op1"] or "bypass"


@activate2.check
def _activate2_operators(i: Instruction, arch: Arch) -> None:
    ops = _activate2_ops(i)
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
def _activate2_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    data, function = i["data"], function_of(i["op"])
    stages = [stage for stage in b.stages(i, "imm") if stage.alu.name != "bypass"]
    slope = i["relu_param"] if function.takes_param else None
    work = b.staged(kit, i["dst"], data, *stages, later=slope)
    params = (work.later,) if function.takes_param else ()
    work.ops.append(op(function.f32, work.x, work.out, *params))
    return summed(i, kit, data, work, ALU[i["reduce_op"] or "add"], i["reduce_cmd"])


_EXP_FLOATS = (d.float8_e4m3, d.float8_e5m2, d.float16, d.bfloat16, d.float32)
_EXP_INTEGERS = (d.int8, d.int16, d.int32, d.uint8, d.uint16)
_EXP_COMMANDS = tuple(cmd for cmd in reduce_cmd if cmd is not reduce_cmd.reset)


@instruction(
    engines="vector",
    effects=Effects(elementwise("src max_value"), partial=False, bits=None, state=State.SUMS),
    min_generation=4,
    checks=[
        same_tile("dst src"),
        dimensions("dst src", 4),
        number_or_column("max_value", "src"),
        tile_dtype("max_value", float32),
        one_per_partition("reduce_res", "src"),
        initial_value("reduce_init", "src", unset=0),
    ],
    cost=per_element("dst", share=1 / 4, flops=2),
)
def exponential(
    dst=write(dtypes=(*_EXP_FLOATS, d.tfloat32, *_EXP_INTEGERS), indirect=16),
    src=read(dtypes=(*_EXP_FLOATS, *_EXP_INTEGERS, d.uint32), indirect=16),
    max_value=read(scalar=True).default(0.0),
    reduce_res=write(dtypes=(*_EXP_FLOATS, d.tfloat32), optional=True).default(None),
    reduce_cmd=Choice(reduce_cmd, _EXP_COMMANDS).default(reduce_cmd.idle),
    reduce_init=read(scalar=True).default(0.0),
    name=None,
):
    """`dst = exp(src - max_value)`, and optionally the sum of each row of that.

    Args:
        dst, src: tiles of up to 4 dimensions with the same partitions and elements per partition.
        max_value: a number or a (P, 1) float32 tile.
        reduce_res: (P, 1) float tile that receives the Vector engine's accumulator registers.
        reduce_cmd: idle, reset_reduce, reduce or load_reduce (start from reduce_init).
        reduce_init: a number or a (P, 1) float32 tile; 0 unless load_reduce.

    Computed in float32; sums are of values before their rounding to `dst.dtype`. With idle the
    registers keep their values; the documentation leaves that open.

    Raises:
        NkiValidationError: platform, shapes, dtypes or reduction don't fit.
    """
    return locals()


@exponential.meaning
def _exponential_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    src, shift = i["src"], i["max_value"]
    moved = isinstance(shift, Access) or shift != 0
    stages = [b.Stage(ALU["subtract"], shift)] if moved else []
    work = b.staged(kit, i["dst"], src, *stages)
    work.ops.append(op(ACTIVATIONS["exp"].f32, work.x, work.out))
    return summed(i, kit, src, work, ALU["add"], i["reduce_cmd"], i["reduce_init"])
