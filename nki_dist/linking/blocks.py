"""The way of linking through a program: where segments begin and end, and storages their lives.

Memory that may be read before it is written is filled when the first instruction touches it.
"""

from __future__ import annotations

import math
from typing import Any

from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.kit import Kit
from nki_dist.linking.linked import Block, LinkedExchange, LinkedLoop, Segment
from nki_dist.linking.located import raise_at
from nki_dist.ops.arrays import fill
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction, Loop, Program, instructions
from nki_dist.program import Block as Items


class Linker:
    """Makes segments, exchanges and loops of a program; whoever links says what is in them.

    Args:
        program: of a core.

    Attributes:
        longest: steps of a segment.
    """

    longest: float = math.inf

    def __init__(self, program: Program) -> None:
        self.program = program
        self._births = births(program)

    @property
    def core(self) -> int | str | None:
        """As messages call it, where that is known."""
        return None

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


def births(program: Program) -> dict[int, list[int]]:
    """By ordinal of the instruction that touches them first, the storages to be filled before it.

    Of PSUM storages where matmuls decide at run time, it is also forgotten what they hold.
    """
    found: dict[int, list[int]] = {}
    poisoned = program.facts.get("poison")
    poisoned = None if poisoned is None else frozenset(poisoned)
    for s in program.storages:
        if s.role == "local" and s.first >= 0 and (poisoned is None or s.number in poisoned):
            found.setdefault(s.first, []).append(s.number)
    for number in program.facts.get("runtime_psum", ()):
        first = program.storages[number].first
        if number not in found.setdefault(first, []):
            found[first].append(number)
    return found


def birth(program: Program, number: int, kit: Kit) -> list[Operation]:
    """Fill a storage nobody wrote as its life begins, and forget what was accumulated in it."""
    storage = program.storages[number]
    dtype, count = storage.dtype, storage.nbytes // storage.dtype.itemsize
    bits = kit.raw(Access(storage, 0, (count,), (1,), dtype))
    filled = [op(fill, bits, dtype.raw.type(program.unwritten(dtype)))]
    if number in program.facts.get("runtime_psum", ()):
        filled.append(op(fill, kit.mask(storage), False))
    return filled
