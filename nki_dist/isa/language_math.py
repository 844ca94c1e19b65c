"""The functions of the language that no documented instruction computes: `nl.cos`, `nl.floor`, ...

A pseudo-instruction, like `device_print`: the document names the functions and doesn't say what
they are compiled to, so each is one instruction here, with exact values and the cost of an
activation, marked as assumed. It isn't part of `nki.isa`.
"""

from __future__ import annotations

from nki_dist.dtypes import float32
from nki_dist.isa.activations import MATH
from nki_dist.isa.checks import same_tile
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.operands import Op, read, write
from nki_dist.isa.spec import Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element


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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    out, (x,), wrap = kit.elementwise(i["dst"], [i["data"]], float32)
    return wrap(op(MATH[i["op"]].f32, x, out))
