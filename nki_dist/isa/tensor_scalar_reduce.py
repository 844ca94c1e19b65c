"""nisa.tensor_scalar_reduce: one operator with a number or column, and a row reduction."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import initial_value, one_per_partition, summed
from nki_dist.isa.alu import ALU, TENSOR_SCALAR_REDUCE
from nki_dist.isa.checks import same_tile, unpacked
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import FLAG, Choice, Op, read, write
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.operation import Operation
from nki_dist.program import Instruction

_COMMANDS = (reduce_cmd.reset_reduce, reduce_cmd.reduce, reduce_cmd.load_reduce)


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
def _check(i: Instruction, arch: Arch) -> None:
    if i["reverse0"]:
        message = "reverse0=True; allowed: False (the instruction lacks it)"
        raise NkiValidationError(message, code="engine-lacks")


@tensor_scalar_reduce.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    work = b.staged(kit, i["dst"], i["data"], b.Stage(ALU[i["op0"]], i["operand0"]))
    alu = ALU[i["reduce_op"]]
    return summed(i, kit, i["data"], work, alu, i["reduce_cmd"], i["reduce_init"])
