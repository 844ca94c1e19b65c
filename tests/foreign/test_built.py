"""Each construct of a published kernel that no other test has: a kernel of our own, its values."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

import nki_dist.isa as nisa
from nki_dist.errors import CompilerMayRejectWarning
from tests.foreign import constructs, table
from tests.foreign.built import PLAIN, Operand
from tests.foreign.instructions import BUILT

# Operands of an instruction where a construct names only one, or an attribute.
USUAL = {
    "memset": "dst=sbuf float32",
    "tensor_copy": "dst=sbuf float32, src=sbuf float32",
    "dma_copy": "dst=hbm float32, src=sbuf float32",
    "tensor_tensor": "dst=sbuf float32, data1=sbuf float32, data2=sbuf float32",
    "tensor_scalar": "dst=sbuf float32, data=sbuf float32",
    "scalar_tensor_tensor": "dst=sbuf float32, data=sbuf float32, operand1=sbuf float32",
    "activation": "dst=sbuf float32, data=sbuf float32",
    "activation_reduce": "dst=sbuf float32, data=sbuf float32, reduce_res=sbuf float32",
    "tensor_reduce": "dst=sbuf float32, data=sbuf float32",
    "tensor_partition_reduce": "dst=sbuf float32, data=sbuf float32",
    "tensor_tensor_scan": "dst=sbuf float32, data0=sbuf float32, data1=sbuf float32",
    "reciprocal": "dst=sbuf float32, data=sbuf float32",
    "nc_transpose": "dst=psum float32, data=sbuf float32",
    "nc_matmul": "dst=psum float32, stationary=sbuf float32, moving=sbuf float32",
    "iota": "dst=sbuf int32",
    "nc_stream_shuffle": "dst=sbuf float32, src=sbuf float32",
    "tensor_copy_predicated": "src=sbuf float32, predicate=sbuf uint8, dst=sbuf float32",
}
USUAL |= {
    "dma_transpose": "dst=sbuf bfloat16, src=hbm bfloat16",
    "nc_n_gather": "dst=sbuf float32, data=sbuf float32, indices=sbuf uint32",
    "nc_find_index8": "dst=sbuf uint32, data=sbuf float32, vals=sbuf float32",
    "tensor_scalar_reduce": "dst=sbuf float32, data=sbuf float32, reduce_res=sbuf float32",
}
NUMBERS = {"float": 2.0, "float 0": 0.0, "int": 2, "int 0": 0}
ROWS = [row for row in table.constructs() if row.partition(":")[0].partition(".")[0] in BUILT]


def operands(text: str) -> dict[str, Operand]:
    """`dst=psum float32, src=sbuf bfloat16` as operands, in order."""
    found = {}
    for part in text.split(", "):
        name, _, kind = part.partition("=")
        found[name] = Operand(*kind.split(" "))
    return found


def case(construct: str) -> Any:
    """The kernel for a construct of an instruction in BUILT."""
    opcode, rest = re.split(r"[.: ]", construct, maxsplit=1)
    if construct.startswith(f"{opcode}: "):
        return BUILT[opcode](operands(rest.strip()))
    name, sign, value = re.match(r"(\w+)(: |=)(.*)", rest).groups()
    usual = operands(USUAL[opcode])
    if sign == ": ":
        usual.setdefault(name, Operand("sbuf", "float32"))
        old, (_, view, dtype) = usual[name], value.partition(" as ")
        if view:  # the others are of the same dtype, so that none is converted
            usual = {n: Operand(o.memory, dtype) for n, o in usual.items()}
        usual[name] = Operand(old.memory, dtype if view else old.dtype, value)
        return BUILT[opcode](usual)
    value, _, into = value.partition(" into ")
    if into:
        usual["dst"] = Operand("sbuf", into)
    return BUILT[opcode](usual, **{name: attribute(name, value)})


def attribute(name: str, value: str) -> Any:
    """A number of the kind, a bool or text as it is written, or a member of an enum of nisa."""
    if value in NUMBERS:
        return NUMBERS[value]
    if value[0] in "'TF":
        return ast.literal_eval(value)
    return getattr(getattr(nisa, name), value)


@pytest.mark.parametrize("construct", ROWS)
def test_the_construct(construct):
    compiled = case(construct).run()
    assert construct in constructs.of(compiled)
    refused = [w for w in compiled.warnings if isinstance(w, CompilerMayRejectWarning)]
    assert refused == []


def test_forms_are_what_they_say():
    for form in (PLAIN, "stride 0", "stride below 0", "steps in the last dimension"):
        elements = Operand("sbuf", "float32", form).elements()
        assert elements.shape == (8, 12)
        assert len(set(elements.reshape(-1).tolist())) == (48 if form == "stride 0" else 96)
