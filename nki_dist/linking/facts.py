"""What linking asks of instructions: once for all that differ only in where their operands lie.

Such instructions have one `kind`, which the tracer, or whoever read the program, has noted (see
`program.Instruction`). All others are asked one by one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import Spec
from nki_dist.linking.indirect import has_indirection
from nki_dist.program import Access, Instruction, psum
from nki_dist.program.walk import run_time_arguments


class Facts(NamedTuple):
    """What is so for an instruction, or for all of a kind.

    Attributes:
        dynamic: operands with one run-time address.
        indirect: whether some operand is an indirect view.
        operands: names of the arguments that are tensors; None where they aren't all of a kind's.
        written, sums: of these, those that are written, and those in PSUM.
    """

    spec: Spec
    dynamic: tuple[Access, ...]
    indirect: bool
    operands: tuple[str, ...] | None = None
    written: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()


class FactTable:
    """The facts of the instructions of a program.

    Attributes:
        kinds: the facts of kinds by identity. For those who ask for many instructions one after
            the other, before they call `of`.
    """

    def __init__(self) -> None:
        self.kinds: dict[int, Facts] = {}
        self._alive: list[Any] = []  # kinds: identities are good as long as their objects live
        self._others: dict[int, Facts] = {}

    def of(self, i: Instruction) -> Facts:
        """Of an instruction of the program as it stands there."""
        if i.kind is None:
            found = self._others.get(i.ordinal)
            if found is None:
                found = self._others[i.ordinal] = facts_of(i)
            return found
        found = self.kinds.get(id(i.kind))
        if found is None:
            found = self.kinds[id(i.kind)] = _facts_of_kind(i)
            self._alive.append(i.kind)
        return found


def facts_of(i: Instruction) -> Facts:
    """Of one instruction."""
    return Facts(INSTRUCTIONS[i.opcode], tuple(run_time_arguments(i)), has_indirection(i))


def _facts_of_kind(i: Instruction) -> Facts:
    facts = facts_of(i)
    names = tuple([name for name, value in i.args.items() if isinstance(value, Access)])
    return facts._replace(
        operands=names,
        written=tuple([name for name in facts.spec.written if name in names]),
        sums=tuple([name for name in names if i.args[name].storage.region is psum]),
    )
