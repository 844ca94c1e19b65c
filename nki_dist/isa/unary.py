"""nisa.reciprocal, and the functions of the language that no documented instruction computes.

Those are `nl.cos`, `nl.floor`, ...: a pseudo-instruction, like `device_print`. The document names
the functions and doesn't say what they are compiled to, so each is one instruction here, with exact
values and the cost of an activation, marked as assumed. It isn't part of `nki.isa`.
"""

from __future__ import annotations

from nki_dist.dtypes import float32
from nki_dist.isa import broadcast as b
from nki_dist.isa.activations import MATH
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import same_tile, unpacked
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.operands import Op, read, write
from nki_dist.isa.spec import Instruction, Kit, Operation, instruction, op
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
def _reciprocal_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    out, (x,), wrap = kit.elementwise(i["dst"], [i["data"]], float32)
    return wrap(b.apply(ALU["reciprocal"], x, None, out))


@instruction(
    engines="scalar",
    effects=Effects(elementwise("data"), partial=False, bits=None, state=None),
    table="",  # which functions have one isn't known
    documented="nki/api/nki.language",
    checks=[same_tile("dst data")],
    cost=per_element("dst", flops=1, known=False),
)
def language_math(dst=write(), op=Op(MATH), data=read()):
    """`dst = op(data)` element by element, in float32, rounded once to `dst.dtype`."""
    return locals()


@language_math.meaning
def _language_math_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    out, (x,), wrap = kit.elementwise(i["dst"], [i["data"]], float32)
    return wrap(op(MATH[i["op"]].f32, x, out))
