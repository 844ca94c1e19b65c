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

from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.kit import Kit
from nki_dist.linking.addresses import sources
from nki_dist.linking.births import birth, births, born_outside
from nki_dist.linking.chains import Member
from nki_dist.linking.facts import FactTable
from nki_dist.linking.indirect import lowered
from nki_dist.linking.located import raise_at
from nki_dist.linking.placing import SEGMENT
from nki_dist.linking.products import find_chains
from nki_dist.ops.calls import Step
from nki_dist.program import Block, Instruction, Loop, Program
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.binding import Bound, BoundExchange, BoundLoop, Segment
from nki_dist.runtime.late import AtRunTime
from nki_dist.runtime.running import Running


class SingleLinker:
    """Links one program for one core. See the module's docstring.

    Args:
        program: of the core.
        kit: of the core.
    """

    def __init__(self, program: Program, kit: Kit) -> None:
        self.program = program
        self.kit = kit
        self.masked = tuple(program.facts.get("runtime_psum", ()))
        for number in self.masked:
            kit.masks[number] = np.zeros(program.storages[number].nbytes // 2, bool)
        self.late = AtRunTime(kit, lambda i: self.linked(i))
        self._sums: dict[int, tuple[Running, Member]] = {}  # by ordinal
        self._births = births(program)

    @uncollected()
    def link(self) -> Bound:
        """What the executor runs."""
        self.find_chains()
        return self._block(self.program.body)

    def find_chains(self) -> None:
        """Have sums of chains."""
        for chain in find_chains(self.program, self.kit.arch, FactTable()):
            if len(chain.members) > 1:
                running = Running(chain, self.kit)
                self._sums.update({m.instruction.ordinal: (running, m) for m in chain.members})

    def _block(self, block: Block) -> Bound:
        bound: Bound = []
        segment: Segment | None = None
        for item in block:
            if isinstance(item, Loop):
                outside = Segment([], [])
                for number, i in born_outside(self._births, item):
                    self._add(outside, self.birth(number), i)
                body = self._block(item.body) or [Segment([], [])]
                bound += [outside, BoundLoop(item, body)]
                segment = None
                continue
            waits = INSTRUCTIONS[item.opcode].synchronises
            if segment is None or waits or len(segment.steps) >= SEGMENT:
                segment = Segment([], [])
                bound.append(segment)
            for number in self._births.pop(item.ordinal, ()):
                self._add(segment, self.birth(number), item)
            try:
                if waits:
                    self.kit.begin(waits=True)
                    start = self.exchange(item)
                    bound.append(BoundExchange(start, item, ordering(self.program, item)))
                    segment = None
                else:
                    self._add(segment, self.step(item), item)
            except (NkiError, MemoryError) as error:
                # What only a world can't do, or for which there is no scratch memory.
                raise_at(error, item, self.program.where(item.location), self.kit.slot.name)
        return bound

    @staticmethod
    def _add(segment: Segment, step: Step, i: Instruction) -> None:
        segment.steps.append(step)
        segment.instructions.append(i)

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
        link = partial(_exchange, kit or self.kit)
        return self.late.exchange(i, link) if sources(i) else link(i)


def _exchange(kit: Kit, i: Instruction) -> Callable[[], Any]:
    return INSTRUCTIONS[i.opcode].link_exchange(i, kit)
