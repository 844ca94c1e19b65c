"""Takes down what instructions found when they ran: bits of their operands, state of their core.

With it an instruction can be carried out again, alone and on other values. And what there was when
they had run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Enough, Hooks, Place, Watch, replay
from nki_dist.isa.core import CoreSlot, CoreState
from nki_dist.isa.kit import Kit
from nki_dist.program import Instruction, Program
from nki_dist.program.walk import operands


@dataclass
class Found:
    """What one instruction found.

    Attributes:
        reads, writes: its operands; a sum that it goes on with is among both.
        fixed: where the offsets are that chose their rows.
        bits: of each of them, before it ran.
        state: of the core, before it ran.
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
    state: CoreState = field(default_factory=CoreState)
    masks: dict[int, np.ndarray] = field(default_factory=dict)

    def look(self, kit: Kit) -> None:
        """Keep what is there now."""
        for r in (*self.reads, *self.writes, *self.fixed):
            self.bits[id(r)] = r.get(kit)
        self.state = deepcopy(kit.state)
        for _, a in operands(self.instruction.args):
            if a.storage.number in kit.masks:
                self.masks[a.storage.number] = kit.masks[a.storage.number].copy()


class Capture(Watch):
    """Looks at some instructions of a launch while it is replayed.

    Args:
        numbers: of the instructions.

    Attributes:
        found: what each of them found, by number.
    """

    def __init__(self, log: Log, numbers: Collection[int]) -> None:
        self._log = log
        self._numbers = set(numbers)
        self.found: dict[int, Found] = {}
        self._kits: dict[int, Kit] = {}
        replay(log.launched, self)
        self._kits.clear()  # they hold the memories of the replay

    def linking(self, place: Place, i: Instruction) -> Hooks:
        return partial(self._look, place), self._end

    def _look(self, place: Place, number: int) -> None:
        if number not in self._numbers:
            return
        log = self._log
        what = number, log.at(number), place.slot, place.program
        self.found[number] = Found(*what, *log.operands(number), log.chosen_by(number))
        self._kits[number] = place.kit
        for other in log.rendezvous(number):  # what the rank's other core has written since
            found = self.found.get(other)
            if found is not None and found.slot.rank == place.slot.rank:
                found.look(self._kits[other])

    def _end(self, number: int) -> None:
        if len(self.found) == len(self._numbers):
            raise Enough


class Then(Watch):
    """Calls functions when some instructions of a launch have run, while it is replayed.

    Args:
        done: by number of the instruction.
    """

    def __init__(self, log: Log, done: Mapping[int, Callable[[Place], Any]]) -> None:
        self._left = dict(done)
        self._names = {(log.cores[n], log.at(n).ordinal) for n in done}
        replay(log.launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        watched = (place.slot.core, i.ordinal) in self._names
        return None, partial(self._ran, place) if watched else None

    def _ran(self, place: Place, number: int) -> None:
        if number in self._left:
            self._left.pop(number)(place)
            if not self._left:
                raise Enough
