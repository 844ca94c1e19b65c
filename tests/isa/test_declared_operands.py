"""Every parameter of every instruction against a table: memories, types, what else is taken.

`tests/data/nki_operands.txt` is a second entry, no second source: it was written down from the
declarations, so that none changes by accident. A line is a parameter and what it may be: tensors
with `r`, `w` or `rw`, memories and types (all, if none is named), and what stands in for them;
choices and operators by name; for anything else the function that reads it. That what is declared
is also enforced is for test_roles. Of the published interface, `tests/data/nki_api.json`, defaults
can be compared: what is None by default may be None.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nki_dist import dtypes
from nki_dist.errors import NkiValidationError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import Choice, Custom, Integer, Number, Op, Register, Tensor

PAGE = Path(__file__).parents[1] / "data" / "nki_operands.txt"
API = PAGE.with_name("nki_api.json")
MANY = 12  # operators above which their number stands for their names


def declared(role):
    if isinstance(role, Tensor):
        return _tensor(role)
    if isinstance(role, Choice):
        return "one of: " + " ".join(sorted(member.name for member in role.allowed))
    if isinstance(role, Op):
        names = " ".join(sorted(role.allowed))
        names = f"{len(role.allowed)} operators" if len(role.allowed) > MANY else names
        return f"operator: {names}" + " or None" * role.optional
    if isinstance(role, Number):
        return ("integer" if role.integer else "number") + " or None" * role.optional
    if isinstance(role, Register):
        return f"register {role.register_mode}"
    if isinstance(role, Integer):
        return role.allowed
    assert isinstance(role, Custom)
    return f"anything {role.convert.__name__} takes"


def _tensor(role):
    words = [f"{'tensors' if role.many else 'tensor'} {role.mode or 'ordered'}"]
    words.append("in " + " ".join(sorted(role.memories)))
    if role.dtypes is not None:
        left_out = {d for d in dtypes.ALL if not d.is_mx} - role.dtypes
        short = len(role.dtypes) < 6
        names = role.dtypes if short else left_out
        words.append(("of " if short else "not of x4 ") + " ".join(sorted(d.name for d in names)))
    words += ["or number"] * role.scalar
    words += ["or None"] * role.optional + ["at any partition"] * role.any_start
    words += [f"indirect by {role.indirect}"] if role.indirect else []
    return " ".join(words)


def table():
    lines = [line for line in PAGE.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(maxsplit=1) for line in lines)


def test_every_parameter_is_in_the_table():
    parameters = {f"{name}.{p}" for name, spec in INSTRUCTIONS.items() for p in spec.roles}
    other = sorted(set(table()) ^ parameters)
    assert not other, f"a line each in tests/data/nki_operands.txt: {other}"


@pytest.mark.parametrize("name", sorted(INSTRUCTIONS))
def test_parameters_are_declared_as_documented(name):
    spec, documented = INSTRUCTIONS[name], table()
    for parameter, role in spec.roles.items():
        told = documented.get(f"{name}.{parameter}", "no line in tests/data/nki_operands.txt")
        assert declared(role) == told, parameter


# Documented to be None where an operator is unary or something is left out, () for the default.
LEFT_OUT = {
    *(f"activate2.{name}" for name in ("imm0", "imm1", "op0", "op1")),
    "activation_reduce.reduce_res",
    "nc_matmul.tile_position",
    "nc_matmul.tile_size",
    "scalar_tensor_tensor.operand0",
    "tensor_scalar.op0",
    "tensor_scalar.operand0",
    "tensor_scalar_cumulative.imm0",
    "tensor_scalar_reduce.operand0",
}


def test_what_is_none_by_default_may_be_none_and_little_else():
    modules = json.loads(API.read_text())
    functions = modules["nki.isa"]["functions"] | modules["nki.collectives"]["functions"]
    compared = 0
    for name in INSTRUCTIONS.keys() & functions.keys():
        spec = INSTRUCTIONS[name]
        for parameter, *default in functions[name]:
            if parameter in spec.roles:
                wanted = default == ["None"] or f"{name}.{parameter}" in LEFT_OUT
                assert takes_none(spec.roles[parameter]) == wanted, f"{name}.{parameter}"
                compared += 1
    assert compared > 250


def takes_none(role):
    try:
        return role.accept("x", None) is None
    except NkiValidationError:
        return False
