"""nisa.register_alloc, register_move, register_load, register_store: scalars of a sequencer."""

from __future__ import annotations

import numpy as np

from nki_dist.errors import invalid
from nki_dist.isa.checks import check_one_element
from nki_dist.isa.effects import NOTHING_ELSE
from nki_dist.isa.operands import ANYWHERE, Integer, Register, read, write
from nki_dist.isa.spec import Arch, Kit, current_tracer, instruction
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, RegisterNumber, op
from nki_dist.program import Access, Instruction, VirtualRegister

_WORD = Integer("a register or a 32-bit int", -(2**31), 2**32 - 1)


def register_alloc(x=None):
    """A new 32-bit register, 0 unless `x` says otherwise.

    Args:
        x: an int, or a tile of one element to load.
    """
    register = current_tracer().register()
    if isinstance(x, Access):
        register_load(register, x)
    elif x is not None:
        register_move(register, x)
    return register


@instruction(engines="sync", effects=NOTHING_ELSE, cost=fixed("register_cycles"))
def register_move(dst=Register("w", copies="src"), src=_WORD):
    """Copy a register, or a compile-time int, into register `dst`."""
    return locals()


@register_move.meaning
def _move(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src = RegisterNumber(i["dst"].number), i["src"]
    if isinstance(src, VirtualRegister):
        return [op(move_register, kit.registers, RegisterNumber(src.number), dst)]
    return [op(set_register, kit.registers, src, dst)]


@function(writes="dst", name="set register")
def set_register(registers: list[int], value: int, dst: int) -> None:
    """A register becomes a number."""
    registers[dst] = value


@function(reads="src", writes="dst", name="move register")
def move_register(registers: list[int], src: int, dst: int) -> None:
    """A register becomes what another one holds."""
    registers[dst] = registers[src]


@function(reads="cell", writes="dst", name="load register")
def load_register(registers: list[int], cell: np.ndarray, dst: int) -> None:
    """A register becomes the integer that an array of one element holds."""
    registers[dst] = int(cell[()])


@function(reads="src", writes="cell", name="store register")
def store_register(registers: list[int], src: int, bits: int, cell: np.ndarray) -> None:
    """An array of one unsigned integer becomes what a register holds, as so many bits."""
    cell[()] = registers[src] & ((1 << bits) - 1)


@instruction(engines="sync", effects=NOTHING_ELSE, cost=fixed("register_cycles"))
def register_load(dst=Register("w"), src=read(ANYWHERE)):
    """Load register `dst` from a tensor of one 32-bit integer."""
    return locals()


@register_load.meaning
def _load(i: Instruction, kit: Kit) -> list[Operation]:
    cell = kit.view(i["src"]).reshape(())
    return [op(load_register, kit.registers, cell, RegisterNumber(i["dst"].number))]


@instruction(engines="sync", effects=NOTHING_ELSE, cost=fixed("register_cycles"))
def register_store(dst=write(ANYWHERE), src=Register("r")):
    """Store register `src` into a tensor of one 32-bit integer."""
    return locals()


@register_store.meaning
def _store(i: Instruction, kit: Kit) -> list[Operation]:
    cell = kit.raw(i["dst"]).reshape(())
    return [op(store_register, kit.registers, RegisterNumber(i["src"].number), 32, cell)]


@register_load.check
@register_store.check
def _one_word(i: Instruction, arch: Arch) -> None:
    tensor = i["src"] if i.opcode == "register_load" else i["dst"]
    check_one_element(tensor, "a register holds one element", code="register-tensor")
    if tensor.dtype.bits != 32 or not tensor.dtype.is_integer:
        message = f"dtype {tensor.dtype}; allowed: int32, uint32"
        raise invalid(
            message, code="register-tensor", got=tensor.dtype, allowed=["int32", "uint32"]
        )
