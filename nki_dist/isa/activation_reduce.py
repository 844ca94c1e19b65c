"""nisa.activation_reduce: activation and the sum of each row, registers reset first."""

from __future__ import annotations

from nki_dist.isa.activation import FUNCTIONS, OPERANDS, activate
from nki_dist.isa.alu import ACTIVATION_REDUCE
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import Op, read, write
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.operation import Operation
from nki_dist.program import Instruction


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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return activate(i, kit, reduce_cmd.reset_reduce)
