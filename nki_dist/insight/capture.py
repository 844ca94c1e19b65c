"""What instructions found when they ran: the bits of their operands, and their core's state.

With it an instruction can be carried out again, alone and on other values.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_dist.dtypes import float32
from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region, sums_key
from nki_dist.insight.replay import Enough, Hooks, Key, Launched, Place, Watch, replay
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit
from nki_dist.program import Access, Instruction, MemoryRegion, Program, Storage
from nki_dist.program.walk import operands


class Sums(Region):
    """The accumulator registers of an engine, as a memory."""

    def __init__(self, key: Key, engine: str, partitions: int) -> None:
        storage = Storage(-1, MemoryRegion.sbuf, (partitions,), float32, f"sums of {engine}")
        a = Access(storage, 0, (partitions,), (1,), float32)
        super().__init__(key, storage, float32, a)
        self.engine = engine

    def get(self, kit: Kit) -> np.ndarray:
        count = self.shape[0]
        return kit.state.accumulator(self.engine, count).view(np.uint32).copy()

    def put(self, kit: Kit, bits: np.ndarray) -> None:
        kit.state.accumulator(self.engine, self.shape[0]).view(np.uint32)[...] = bits


@dataclass
class Found:
    """What one instruction found.

    Attributes:
        reads, writes: its operands; a sum that it goes on with is among both.
        fixed: where the offsets are that chose their rows.
        bits: of each of them, before it ran.
        masks: of PSUM storages it writes, where matmuls decide at run time.
    """

    number: int
    instruction: Instruction
    slot: CoreSlot
    program: Program
    reads: list[Region]
    writes: list[Region]
    fixed: list[Region]
    bits: dict[int, np.ndarray] = field(default_factory=dict)
    registers: list[int] = field(default_factory=list)
    random: dict[str, Any] = field(default_factory=dict)
    masks: dict[int, np.ndarray] = field(default_factory=dict)

    def look(self, place: Place) -> None:
        """Keep what is there now."""
        kit = place.kit
        for r in (*self.reads, *self.writes, *self.fixed):
            self.bits[id(r)] = r.get(kit)
        self.registers = list(kit.state.registers)
        self.random = deepcopy(kit.state.random)
        for _, a in operands(self.instruction.args):
            if a.storage.number in place.masks:
                self.masks[a.storage.number] = place.masks[a.storage.number].copy()


def regions_of(log: Log, number: int) -> tuple[list[Region], list[Region]]:
    """Of an instruction, what it reads (without addresses) and what it writes, sums included."""
    reads, writes = log.reads(number), log.writes(number)
    slot = log.launched.slots[log.cores[number]]
    i = log.at(number)
    key = sums_key(slot, i)
    if key is not None:
        sums = Sums(key, i.engine, 128)
        reads, writes = [*reads, sums], [*writes, sums]
    return reads, writes


class Capture(Watch):
    """Looks at some instructions of a launch while it is replayed.

    Args:
        numbers: of the instructions.

    Attributes:
        found: what each of them found, by number.
    """

    def __init__(self, launched: Launched, log: Log, numbers: Collection[int]) -> None:
        self._log = log
        self._wanted = set(numbers)
        self._last = max(numbers, default=-1)
        self._ordinals = {(log.cores[n], log.at(n).ordinal) for n in numbers}
        self.found: dict[int, Found] = {}
        self._places: dict[int, Place] = {}
        replay(launched, self)
        self._places.clear()  # they hold the memories of the replay

    def linking(self, place: Place, i: Instruction) -> Hooks:
        if (place.slot.core, i.ordinal) not in self._ordinals:
            return None, None

        places = self._places

        def look(number: int) -> None:
            if number not in self._wanted:
                return
            reads, writes = regions_of(self._log, number)
            fixed = self._log.chosen_by(number)
            what = number, self._log.at(number), place.slot, place.program
            found = Found(*what, reads, writes, fixed)
            self.found[number] = found
            found.look(place)
            if not INSTRUCTIONS[i.opcode].synchronises:
                return
            for other in self._log.meeting(number):  # what the rank's other core wrote since
                earlier = self.found.get(other)
                if (
                    earlier is not None
                    and earlier is not found
                    and earlier.slot.rank == place.slot.rank
                ):
                    earlier.look(places[other])
            places[number] = place

        def end(number: int) -> None:
            if number == self._last:
                raise Enough

        return look, end


def bytes_looked_at(log: Log, number: int) -> int:
    """How much memory `Capture` takes for an instruction."""
    i = log.at(number)
    spec = INSTRUCTIONS[i.opcode]
    return 256 + sum(a.nbytes for a in (*spec.reads(i), *spec.writes(i)))
