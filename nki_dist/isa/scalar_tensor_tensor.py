"""nisa.scalar_tensor_tensor: a tile with a number, and the result with another tile."""

from __future__ import annotations

from nki_dist.dtypes import bfloat16
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import one_in_psum, same_tile, unpacked
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.operands import FLAG, Op, read, write
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction
from nki_dist.isa.timing_rules import issue_cycles


@instruction(
    former=("dtype",),
    engines="vector",
    effects=Effects(elementwise("data operand0 operand1"), partial=False, bits=None, state=None),
    checks=[
        same_tile("dst data operand1"),
        one_in_psum("data operand1"),
        b.operand("operand0", "op0", "data"),
        unpacked("dst data operand0 operand1"),
        b.available("op0 op1"),
    ],
)
def scalar_tensor_tensor(
    dst=write(),
    data=read(),
    op0=Op(b.ARITHMETIC),
    operand0=read(scalar=True, optional=True),
    op1=Op(b.ARITHMETIC_BINARY),
    operand1=read(),
    reverse0=FLAG.default(False),
    reverse1=FLAG.default(False),
    name=None,
):
    """`dst = (data op0 operand0) op1 operand1` with a broadcast operand0 and a full operand1.

    Args:
        dst, data, operand1: tiles with the same partitions and elements per partition; data and
            operand1 not both in PSUM.
        op0, op1: arithmetic operators; op0 may be unary.
        operand0: a number or a (P, 1) tile; None or 0 if op0 is unary.
        reverse0, reverse1: the operand is the left side.

    Computed in float32 and rounded once to `dst.dtype`.

    Raises:
        NkiValidationError: shapes, dtypes, memories or operators don't fit.
    """
    return locals()


@scalar_tensor_tensor.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    stages = [b.Stage(ALU[i["op" + n]], i["operand" + n], i["reverse" + n]) for n in "01"]
    work = b.staged(kit, i["dst"], i["data"], *stages)
    return work.wrap(*work.ops)


@scalar_tensor_tensor.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    n = i["dst"].free_size
    both = i["data"].dtype is bfloat16 and i["operand1"].dtype is bfloat16
    fast = both and i["op0"] == "subtract" and i["op1"] == "multiply" and n % 2 == 0
    return Cost(
        cycles=issue_cycles(n if fast else 2 * n / arch.vector_width, arch), flops=2 * i["dst"].size
    )
