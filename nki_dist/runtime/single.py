"""Linking one instruction after the other, for those who watch what each of them does.

Nothing is shared or left out, and a matmul does what it says when its turn comes; the last one of a
chain brings the sum that the product would have been (`runtime.running`), so results have the bits
of ordinary launches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.kit import Kit
from nki_dist.linking.addresses import sources
from nki_dist.linking.births import birth
from nki_dist.linking.blocks import Linker
from nki_dist.linking.chains import Member
from nki_dist.linking.facts import FactTable
from nki_dist.linking.indirect import lowered
from nki_dist.linking.placing import SEGMENT
from nki_dist.linking.products import find_chains
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction, Program
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.binding import Bound
from nki_dist.runtime.late import AtRunTime
from nki_dist.runtime.running import Running


class SingleLinker(Linker):
    """Links one program for one core. See the module's docstring.

    Args:
        program: of the core.
        kit: of the core.
    """

    longest = SEGMENT

    def __init__(self, program: Program, kit: Kit) -> None:
        super().__init__(program)
        self.kit = kit
        self.core = kit.slot.name
        self.masked = tuple(program.facts.get("runtime_psum", ()))
        for number in self.masked:
            kit.masks[number] = np.zeros(program.storages[number].nbytes // 2, bool)
        self.late = AtRunTime(kit, lambda i: self.linked(i))
        self._sums: dict[int, tuple[Running, Member]] = {}  # by ordinal

    @uncollected()
    def link(self) -> Bound:
        """What the executor runs."""
        self.find_chains()
        return self.block(self.program.body)

    def find_chains(self) -> None:
        """Have sums of chains."""
        for chain in find_chains(self.program, self.kit.arch, FactTable()):
            if len(chain.members) > 1:
                running = Running(chain, self.kit)
                self._sums.update({m.instruction.ordinal: (running, m) for m in chain.members})

    def birth(self, number: int) -> Step:
        """The step with which a storage nobody wrote begins to live."""
        return self.kit.step(birth(self.program, number, self.kit))

    def step(self, i: Instruction) -> Step:
        """The step of an instruction that waits for nobody."""
        if found := sources(i):
            return self.late.step(i, found)
        self.kit.begin()
        return self.linked(i)

    def linked(self, i: Instruction) -> Step:
        """The step of an instruction whose scalar run-time offsets are known."""
        step = self.kit.step(lowered(i, self.kit, self.kit.masks))
        if i.ordinal in self._sums:
            running, member = self._sums[i.ordinal]
            step = running.wrapped(member, step)
        return step

    def exchange(self, i: Instruction, kit: Kit | None = None) -> Callable[[], Any]:
        """What begins an instruction that waits for others; see Spec.link_exchange.

        Args:
            kit: in place of the core's own.
        """
        self.kit.begin(waits=True)
        link = partial(_exchange, kit or self.kit)
        return self.late.exchange(i, link) if sources(i) else link(i)


def _exchange(kit: Kit, i: Instruction) -> Callable[[], Any]:
    return INSTRUCTIONS[i.opcode].link_exchange(i, kit)
