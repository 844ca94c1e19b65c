"""Turns the instructions of a program into operations on parts of memory that is yet to come.

Passes that make a program faster, and may be left out without a change of a bit, are those that
`passes.link_passes` lists.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import Any

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.randomness import GENERATORS, WORDS
from nki_dist.linking.births import birth
from nki_dist.linking.blocks import Linker
from nki_dist.linking.facts import FactTable
from nki_dist.linking.kinds import Kinds, Run
from nki_dist.linking.linked import Late, Linked
from nki_dist.linking.lowering import Lowering
from nki_dist.linking.products import Products
from nki_dist.ops.arrays import fill
from nki_dist.ops.operation import op
from nki_dist.ops.place import Place, Space
from nki_dist.program import Instruction, Program
from nki_dist.program.uncollected import uncollected


@uncollected()
def link(program: Program, arch: Arch, without: Collection[str] = ()) -> Linked:
    """The linked program.

    Args:
        program: of a core.
        arch: its platform.
        without: passes that are left out.

    Raises:
        NkiError: what only this platform can't do.
    """
    return _Linker(program, arch, without).linked()


class _Linker(Linker):
    def __init__(self, program: Program, arch: Arch, without: Collection[str]) -> None:
        super().__init__(program)
        self._facts = FactTable()
        self._known = self._facts.kinds
        self._kit = Lowering(arch)
        self._masked = tuple(program.facts.get("runtime_psum", ()))
        self._kinds = Kinds(self._kit, self._masked)
        self._products = Products(program, self._kit, self._facts, without)
        self._runs: list[Run] = []
        self._numbers: dict[Run, int] = {}

    def linked(self) -> Linked:
        body = self.block(self.program.body)
        spaces, panels = self._spaces(), self._products.panels
        kinds = self._kinds.kinds
        return Linked(self.program, kinds, self._runs, body, spaces, panels, self._masked)

    def _spaces(self) -> dict[Space, int]:
        found: dict[Space, int] = {
            ("scratch", 0): max((k.scratch for k in self._kinds.kinds), default=0)
        }
        for number in self._masked:
            found["mask", number] = self.program.storages[number].nbytes // 2
        for kind in self._kinds.kinds:
            for o in kind.operations:
                for a in o.arguments:
                    if type(a) is Place and a.space[0] == "accumulators":
                        found[a.space] = 4 * self._kit.arch.partitions
                    elif type(a) is Place and a.space[0] == "random":
                        shape = WORDS, self._kit.arch.partitions, GENERATORS[str(a.space[1])]
                        found[a.space] = 4 * prod(shape)
        return found

    def step(self, i: Instruction) -> Any:
        products, kit = self._products, self._kit
        facts = self._known.get(id(i.kind)) or self._facts.of(i)
        if facts.dynamic:
            return Late(i)
        if i.ordinal in products.members:
            kit.begin()
            operations = products.operations(i)
            if self._masked and i.ordinal in products.last:
                operations += self._marks(i)
            return self._number(self._kinds.run_of(operations, kit.used))
        if i.ordinal in products.unmade:
            return self._number(self._kinds.run_of((), 0))
        return self._number(self._kinds.of(i, facts))

    def birth(self, number: int) -> int:
        operations = birth(self.program, number, self._kit)
        return self._number(self._kinds.run_of(operations, 0))

    def _marks(self, i: Instruction) -> list[Any]:
        """What the next matmul finds where a product has been left."""
        return [
            op(fill, self._kit.accumulating(a), True)
            for a in INSTRUCTIONS[i.opcode].writes(i)
            if a.storage.number in self._masked
        ]

    def _number(self, run: Run) -> int:
        number = self._numbers.get(run)
        if number is None:
            number = self._numbers[run] = len(self._runs)
            self._runs.append(run)
        return number
