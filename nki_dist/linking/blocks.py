"""The way of linking through a program: where segments begin and end, and storages their lives."""

from __future__ import annotations

import math
from typing import Any

from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.linking.births import births
from nki_dist.linking.linked import Block, LinkedExchange, LinkedLoop, Segment
from nki_dist.linking.located import raise_at
from nki_dist.program import Block as Items
from nki_dist.program import Instruction, Loop, Program, instructions


class Linker:
    """Makes segments, exchanges and loops of a program; whoever links says what is in them.

    Args:
        program: of a core.

    Attributes:
        core: as messages call it, where that is known.
        longest: steps of a segment.
    """

    core: int | str | None = None
    longest: float = math.inf

    def __init__(self, program: Program) -> None:
        self.program = program
        self._births = births(program)

    def step(self, i: Instruction) -> Any:
        """What an instruction does that waits for nobody."""
        raise NotImplementedError

    def birth(self, number: int) -> Any:
        """What begins the life of a storage."""
        raise NotImplementedError

    def exchange(self, i: Instruction) -> Any:
        """What begins an instruction that may wait for other cores, if that is known."""
        return None

    def block(self, block: Items) -> Block:
        """What a block of the program becomes.

        Raises:
            NkiError: of an instruction, with its place.
        """
        found: Block = []
        segment: Segment | None = None
        step, waiting, longest = self.step, self._births, self.longest
        for item in block:
            if isinstance(item, Loop):
                found += [self._born_outside(item), self._loop(item)]
                segment = None
                continue
            waits = INSTRUCTIONS[item.opcode].synchronises
            if segment is None or waits or len(segment.steps) >= longest:
                segment = Segment([], [])
                found.append(segment)
            for number in waiting.pop(item.ordinal, ()):
                self._born(number, item, segment)
            try:
                if waits:
                    orders = ordering(self.program, item)
                    found.append(LinkedExchange(item, orders, self.exchange(item)))
                    segment = None
                    continue
                segment.steps.append(step(item))
                segment.instructions.append(item)
            except (NkiError, MemoryError) as error:
                raise_at(error, item, self.program.where(item.location), self.core)
        return found

    def _loop(self, loop: Loop) -> LinkedLoop:
        # A body without instructions iterates, and is looked at, all the same.
        return LinkedLoop(loop, self.block(loop.body) or [Segment([], [])])

    def _born_outside(self, loop: Loop) -> Segment:
        """The births of storages that a loop touches first but that live across its rounds."""
        outside = Segment([], [])
        for i in instructions(loop.body):
            here = self._births.get(i.ordinal, [])
            for number in [n for n in here if n < loop.outside]:
                here.remove(number)
                self._born(number, i, outside)
        return outside

    def _born(self, number: int, i: Instruction, segment: Segment) -> None:
        segment.births.add(len(segment.steps))
        segment.steps.append(self.birth(number))
        segment.instructions.append(i)
