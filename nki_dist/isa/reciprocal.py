"""nisa.reciprocal: 1/x on the Vector engine."""

from __future__ import annotations

from nki_dist.dtypes import float32
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import same_tile, unpacked
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.operands import read, write
from nki_dist.isa.spec import Instruction, Kit, Operation, instruction
from nki_dist.isa.timing_rules import per_element


@instruction(
    engines="vector",
    effects=Effects(elementwise("data"), partial=False, bits=None, state=None),
    checks=[same_tile("dst data"), unpacked("dst data")],
    cost=per_element("dst", share="reciprocal_cycles", flops=1),
)
def reciprocal(dst=write(), data=read(), name=None):
    """`dst = 1 / data`, computed in float32 and rounded once to `dst.dtype`.

    Args:
        dst, data: tiles with the same partitions and elements per partition.

    Raises:
        NkiValidationError: element counts or dtypes don't fit.
    """
    return locals()


@reciprocal.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    out, (x,), wrap = kit.elementwise(i["dst"], [i["data"]], float32)
    return wrap(b.apply(ALU["reciprocal"], x, None, out))
