"""nl.device_print as an instruction: hands a tensor's value to the driver."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.isa.core import Wires
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.operands import ANYWHERE, Custom, read
from nki_dist.isa.spec import Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import function


def _prefix(name, value):
    if not isinstance(value, str):
        raise wrong_value(name, value, "a constant string", code="argument-kind")
    return value


@instruction(
    engines="sync",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.PRINTED),
    documented="nki/api/generated/nki.language.device_print",
    cost=fixed("min_issue_cycles"),
)
def device_print(print_prefix=Custom(_prefix), tensor=read(ANYWHERE)):
    """Print `tensor` with a prefix; see nl.device_print."""
    return locals()


@device_print.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    tensor = i["tensor"]
    return [op(_show, kit.wires, i["print_prefix"], tensor.dtype, kit.view(tensor))]


@function(reads="array", ordered=True, name="print")
def _show(wires: Wires, prefix: str, dtype: DType, array: np.ndarray) -> None:
    """A copy of what a tensor holds goes to who prints."""
    wires.print(prefix, np.array(array).view(dtype.dtype))
