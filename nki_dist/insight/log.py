"""The order in which a launch was carried out: who wrote what when, and which cores met.

Kept for a record when somebody first asks where a number came from: a few words per instruction,
no values. Rows that a vector offset chose are kept, because nothing else says which they were.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from nki_dist.insight.regions import (
    Region,
    chooses_rows,
    index_sources,
    region,
    written_keys,
)
from nki_dist.insight.replay import Hook, Hooks, Key, Launched, Place, Watch, key_of, replay
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Access, Instruction, Storage, instructions


class Log(Watch):
    """What was carried out.

    Attributes:
        cores: by number, the core (of the world).
        instructions: by number, with run-time addresses filled in; None for what isn't the
            beginning of an instruction.
        written: by memory, the numbers at which something was written there, ascending.
        begun: of the number at which an instruction that waits for others ended, that of its
            beginning; for other instructions both are one.
        ended: the other way round.
    """

    def __init__(self, launched: Launched) -> None:
        self.launched = launched
        self.cores = array("l")
        self.instructions: list[Instruction | None] = []
        self.written: dict[Key, array[int]] = defaultdict(lambda: array("q"))
        self.begun: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.unwritten: dict[int, Storage] = {}
        self._rows: dict[int, dict[int, np.ndarray]] = {}
        self._open: dict[int, int] = {}  # by core, the instruction that exchanges messages
        self._messages: dict[tuple[int, int, str], list[int]] = defaultdict(list)
        self._taken: dict[tuple[int, int, str], int] = defaultdict(int)
        self._met: dict[int, int] = {}  # a forest: who is in one meeting
        self._originals: dict[int, dict[int, Instruction]] = {}
        self._regions: dict[int, Region] = {}
        replay(launched, self)
        self._members: dict[int, list[int]] = defaultdict(list)
        for number in self.ended:
            self._members[self._root(number)].append(number)

    # ---- while it is replayed ------------------------------------------------------------------

    def _note(self, number: int, core: int, i: Instruction | None) -> None:
        while len(self.instructions) <= number:
            self.instructions.append(None)
            self.cores.append(core)
        self.instructions[number] = i
        self.cores[number] = core

    def linking(self, place: Place, i: Instruction) -> Hooks:
        # Everything is looked up when it is needed: there may be many instructions.
        if INSTRUCTIONS[i.opcode].synchronises:
            return partial(self._begin, place.slot, i), partial(self._end, place.slot, i)
        return partial(self._ran, place, i), None

    def _ran(self, place: Place, i: Instruction, number: int) -> None:
        self._note(number, place.slot.core, i)
        if chooses_rows(i):
            self._rows[number] = {
                id(a): region(place.slot, a, place.kit).places
                for a in _accesses(i)
                if a.dynamic is not None and a.dynamic.kind == "vector"
            }
        for key in written_keys(place.slot, i):
            self.written[key].append(number)

    def _begin(self, slot: CoreSlot, i: Instruction, number: int) -> None:
        self._note(number, slot.core, i)
        self._open[slot.core] = number

    def _end(self, slot: CoreSlot, i: Instruction, number: int) -> None:
        last = self.now
        self._note(last, slot.core, None)
        self.begun[last], self.ended[number] = number, last
        for key in written_keys(slot, i):
            self.written[key].append(last)

    def birth(self, place: Place, storage: Storage) -> Hook | None:
        found = self.written[key_of(place.slot, storage)]

        def note(number: int) -> None:
            self._note(number, place.slot.core, None)
            self.unwritten[number] = storage
            found.append(number)

        return note

    def sent(self, core: int, to: int, channel: str) -> None:
        self._messages[core, to, channel].append(self._open[core])

    def taken(self, core: int, source: int, channel: str) -> None:
        key = (source, core, channel)
        sender = self._messages[key][self._taken[key]]
        self._taken[key] += 1
        self._met[self._root(sender)] = self._root(self._open[core])

    def _root(self, number: int) -> int:
        met = self._met
        while met.setdefault(number, number) != number:
            met[number] = met[met[number]]
            number = met[number]
        return number

    # ---- afterwards ----------------------------------------------------------------------------

    def at(self, number: int) -> Instruction:
        """The instruction that began at a number."""
        found = self.instructions[number]
        assert found is not None, f"nothing begins at {number}"
        return found

    def original(self, number: int) -> Instruction:
        """The same, with its run-time addresses as the program has them."""
        lnc_core = self.launched.slots[self.cores[number]].lnc_core
        if lnc_core not in self._originals:
            body = self.launched.compiled.programs[lnc_core].body
            self._originals[lnc_core] = {i.ordinal: i for i in instructions(body)}
        return self._originals[lnc_core][self.at(number).ordinal]

    def meeting(self, number: int) -> list[int]:
        """All instructions that exchanged messages with this one, itself included, ascending."""
        members = self._members.get(self._root(number)) if number in self.ended else None
        return sorted(members) if members else [number]

    def before(self, number: int) -> int:
        """Up to where writes count for what the instruction read: a rank's cores may write to
        memory that they share until the last of them has come to a meeting."""
        rank = self.launched.slots[self.cores[number]].rank
        slots, cores = self.launched.slots, self.cores
        return max(n for n in self.meeting(number) if slots[cores[n]].rank == rank)

    def regions(self, number: int, accesses: Sequence[Access]) -> list[Region]:
        """The regions of operands of the instruction that began at a number."""
        slot = self.launched.slots[self.cores[number]]
        rows = self._rows.get(number, {})
        found = []
        for a in accesses:
            if id(a) in rows:
                found.append(Region(key_of(slot, a.storage), a.storage, a.dtype, None, rows[id(a)]))
            else:
                found.append(self._region(number, a))
        return found

    def _region(self, number: int, a: Access) -> Region:
        slot = self.launched.slots[self.cores[number]]
        made = region(slot, a)
        assert made.access is not None
        kept = self._regions.get(id(made.access))
        if kept is None or kept.key != made.key or kept.access is not made.access:
            kept = self._regions[id(made.access)] = made
        return kept

    def writes(self, number: int) -> list[Region]:
        """Where the instruction wrote."""
        i = self.at(number)
        return self.regions(number, INSTRUCTIONS[i.opcode].writes(i))

    def chosen_by(self, number: int) -> list[Region]:
        """Where the offsets are that chose its rows or columns."""
        return self.regions(number, index_sources(self.at(number)))

    def reads(self, number: int) -> list[Region]:
        """What it read, without what its addresses were read from, which `indices` gives."""
        i = self.at(number)
        sources = {id(a.dynamic.source) for a in _accesses(i) if a.dynamic is not None}
        found = [a for a in INSTRUCTIONS[i.opcode].reads(i) if id(a) not in sources]
        return self.regions(number, found)


def _accesses(i: Instruction) -> list[Access]:
    spec = INSTRUCTIONS[i.opcode]
    return [*spec.reads(i), *spec.writes(i)]
