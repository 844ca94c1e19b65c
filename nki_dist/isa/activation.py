"""nisa.activation and activation_reduce: functions of scaled and shifted data, sums of its rows."""

from __future__ import annotations

from nki_dist.dtypes import float32, tfloat32
from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import COMMANDS, one_per_partition, reduction_operator, summed
from nki_dist.isa.activations import ACTIVATIONS
from nki_dist.isa.activations import activation as function_of
from nki_dist.isa.alu import ACTIVATION_REDUCE, ALU
from nki_dist.isa.checks import number_or_column, same_tile, tile_dtype, unpacked
from nki_dist.isa.dma_copy import move
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Kit, last_writes
from nki_dist.isa.operands import Choice, Op, read, write
from nki_dist.isa.spec import Arch, Operation, instruction, op, require_generation
from nki_dist.isa.timing_rules import per_element, reads_sums
from nki_dist.program import Access, Instruction

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
