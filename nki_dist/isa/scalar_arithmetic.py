"""The instruction behind the operators of nisa.NkiScalar: integers of 32 or 64 bits that wrap."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from nki_dist.arch import Arch
from nki_dist.dtypes import int64
from nki_dist.errors import NkiValidationError
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import CLEAN, Effects
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import Custom, Number, Op, Register
from nki_dist.isa.spec import DOCS, instruction
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, RegisterNumber, op
from nki_dist.program import Instruction, VirtualRegister

_OPERATORS: Final[MappingProxyType[str, Callable[[int, int], int]]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
    }
)


def _int_or_register(name: str, value: Any) -> int | VirtualRegister:
    if isinstance(value, VirtualRegister):
        return value
    if isinstance(value, int) and int64.min <= value <= int64.max:
        return value
    raise wrong_value(name, value, "a register or an int of 64 bits", code="scalar-operand")


@instruction(
    engines="sync",
    effects=Effects(CLEAN, partial=False, bits=None, state=None),
    documented=f"{DOCS}nki.isa.NkiScalar",
    cost=fixed("register_cycles"),
)
def scalar_arithmetic(
    dst=Register("w"),
    op=Op(_OPERATORS),
    data1=Custom(_int_or_register),
    data2=Custom(_int_or_register),
    bits=Number(integer=True),
):
    """Register `dst` becomes `data1 op data2`, wrapped to 32 or 64 bits; operators emit it."""
    return locals()


def wrapped(value: int, bits: int) -> int:
    """A number as two's complement of so many bits."""
    half = 1 << (bits - 1)
    return (value + half) % (half << 1) - half


@scalar_arithmetic.check
def _known_width(i: Instruction, arch: Arch) -> None:
    if i["bits"] not in (32, 64):
        message = f"bits={i['bits']}; allowed: 32, 64"
        raise NkiValidationError(message, code="scalar-width", numbers={"got": i["bits"]})


@scalar_arithmetic.meaning
def _arithmetic(i: Instruction, kit: Kit) -> list[Operation]:
    first, second = (
        RegisterNumber(x.number) if isinstance(x, VirtualRegister) else x
        for x in (i["data1"], i["data2"])
    )
    dst = RegisterNumber(i["dst"].number)
    return [op(_compute, kit.registers, i["op"], first, second, i["bits"], dst)]


@function(reads="first second", writes="dst", name="compute register")
def _compute(
    registers: list[int], operator: str, first: int, second: int, bits: int, dst: int
) -> None:
    """A register becomes what an operator makes of registers and numbers, wrapped."""
    a, b = (registers[x] if type(x) is RegisterNumber else x for x in (first, second))
    registers[dst] = wrapped(_OPERATORS[operator](a, b), bits)
