"""Which registers an instruction reads and sets, but for those in addresses of its tensors."""

from __future__ import annotations

from typing import Any

from nki_dist.isa.operands import Register
from nki_dist.isa.spec import Spec
from nki_dist.program import Instruction, VirtualRegister


def registers_read(i: Instruction, spec: Spec) -> set[int]:
    """Numbers of the registers that are operands, those of run-time addresses left out."""
    found = set()
    for name, value in i.args.items():
        if isinstance(value, VirtualRegister):
            role = spec.roles.get(name)
            if not (isinstance(role, Register) and role.register_mode == "w"):
                found.add(value.number)
    return found


def registers_written(i: Instruction, spec: Spec) -> list[int]:
    """Numbers of the registers it sets."""
    return [
        i.args[name].number
        for name, role in spec.roles.items()
        if isinstance(role, Register) and role.register_mode == "w"
    ]


def copied(i: Instruction, spec: Spec) -> Any:
    """The register or number whose value the register it sets takes, if it does nothing else."""
    for role in spec.roles.values():
        if isinstance(role, Register) and role.copies:
            return i.args[role.copies]
    return None
