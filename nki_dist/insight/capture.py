"""Takes down what instructions found when they ran: bits of their operands, state of their core.

With it an instruction can be carried out again, alone and on other values. And what there was when
they had run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Enough, Hooks, Place, Watch, replay
from nki_dist.isa.core import CoreSlot, CoreState
from nki_dist.isa.kit import Kit
from nki_dist.program import Instruction, Program
from nki_dist.program.walk import operands

BUDGET: Final = 64 << 20  # bytes of operands that one replay keeps


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


class Looks(Watch):
    """Calls functions when some instructions of a launch run, while it is replayed up to the last.

    Args:
        calls: by number of the instruction.
        after: when they have run; else when they are about to.
    """

    def __init__(
        self, log: Log, calls: Mapping[int, Callable[[Place], Any]], after: bool = False
    ) -> None:
        self._left, self._after = dict(calls), after
        self._names = {(log.cores[n], log.at(n).ordinal) for n in calls}
        if calls:
            replay(log.launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        watched = (place.slot.core, i.ordinal) in self._names
        hook = partial(self._call, place) if watched else None
        return (None, hook) if self._after else (hook, None)

    def _call(self, place: Place, number: int) -> None:
        if number in self._left:
            self._left.pop(number)(place)
            if not self._left:
                raise Enough


def capture(log: Log, numbers: Iterable[int]) -> dict[int, Found]:
    """What some instructions found, by number."""
    found: dict[int, Found] = {}
    kits: dict[int, Kit] = {}

    def look(number: int, place: Place) -> None:
        what = number, log.at(number), place.slot, place.program
        found[number] = Found(*what, *log.operands(number), log.chosen_by(number))
        kits[number] = place.kit
        for other in log.rendezvous(number):  # what the rank's other core has written since
            if other in found and found[other].slot.rank == place.slot.rank:
                found[other].look(kits[other])

    Looks(log, {n: partial(look, n) for n in numbers})
    return found


class Captured:
    """What instructions of a launch found, taken down when somebody asks.

    Attributes:
        found: what the last replay kept, by number.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.found: dict[int, Found] = {}

    def of(self, number: int, ahead: Iterable[int]) -> list[Found]:
        """What all found that met in an instruction, itself included, ascending.

        Args:
            ahead: what may be asked for next: the same replay keeps it as far as there is room.
        """
        log, members = self._log, self._log.rendezvous(number)
        if not all(n in self.found for n in members):
            chosen, left = set(members), BUDGET
            for n in ahead:
                if left < 0:
                    break
                for member in log.rendezvous(n) if n not in chosen else ():
                    left -= 256 + sum(a.nbytes for _, a in operands(log.at(member).args))
                    chosen.add(member)
            self.found = capture(log, chosen)
        return [self.found[n] for n in members]
