"""The order in which a launch was carried out: who wrote what when, and which cores met.

Kept for a record when somebody first asks where a number came from: a few words per instruction,
no values. Rows that a vector offset chose are kept, because nothing else says which they were.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from nki_dist.insight.regions import Region, Sums, index_sources, region, sums_key, written_keys
from nki_dist.insight.replay import Hooks, Key, Launched, Place, Watch, key_of, replay, title
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.operands import Counts
from nki_dist.program import Access, Instruction, Storage, instructions
from nki_dist.program.walk import operands


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
        unwritten: storages that were filled with what stands for unwritten memory, by number.
        messages: who sent to whom, and how many bytes, in the order in which they were taken.
    """

    def __init__(self, launched: Launched) -> None:
        self.launched = launched
        self.cores = array("l")
        self.instructions: list[Instruction | None] = []
        self.written: dict[Key, array[int]] = defaultdict(lambda: array("q"))
        self.begun: dict[int, int] = {}
        self.ended: dict[int, int] = {}
        self.unwritten: dict[int, Storage] = {}
        self.messages: list[tuple[int, int, int]] = []
        self._met: dict[int, set[int]] = {}  # by number, who is in one rendezvous
        self._originals: dict[int, dict[int, Instruction]] = {}
        self._regions: dict[tuple[int, int], Region] = {}  # by core, and access
        self._rows: dict[tuple[int, int], Region] = {}  # the same by instruction
        replay(launched, self)

    # ---- while it is replayed ------------------------------------------------------------------

    def linking(self, place: Place, i: Instruction) -> Hooks:
        # Everything is looked up when it is needed: there may be many instructions.
        if INSTRUCTIONS[i.opcode].synchronises:
            return partial(self._note, place.slot, i), partial(self._end, place.slot, i)
        return partial(self._ran, place, i), None

    def _note(self, slot: CoreSlot, i: Instruction | None, number: int) -> None:
        self.instructions.append(i)  # the one of this number: they all come by in order
        self.cores.append(slot.core)

    def _ran(self, place: Place, i: Instruction, number: int) -> None:
        self._note(place.slot, i, number)
        for _, a in operands(i.args):
            if a.dynamic is not None and a.dynamic.kind == "vector":
                self._rows[number, id(a)] = region(place.slot, a, place.kit)
        for key in written_keys(place.slot, i):
            self.written[key].append(number)

    def _end(self, slot: CoreSlot, i: Instruction, number: int) -> None:
        self._note(slot, None, self.now)
        self.begun[self.now], self.ended[number] = number, self.now
        for key in written_keys(slot, i):
            self.written[key].append(self.now)

    def birth(self, place: Place, storage: Storage) -> None:
        self._note(place.slot, None, self.now)
        self.unwritten[self.now] = storage
        self.written[key_of(place.slot, storage)].append(self.now)

    def met(self, sender: int, receiver: int, nbytes: int) -> None:
        self.messages.append((sender, receiver, nbytes))
        mine, theirs = (self._met.setdefault(n, {n}) for n in (sender, receiver))
        if mine is not theirs:
            mine |= theirs
            self._met.update(dict.fromkeys(theirs, mine))

    # ---- afterwards ----------------------------------------------------------------------------

    def at(self, number: int) -> Instruction:
        """The instruction that began at a number."""
        found = self.instructions[number]
        assert found is not None, f"nothing begins at {number}"
        return found

    def who(self, number: int) -> tuple[str | None, int, int, str]:
        """The kernel line, the core within its rank, the rank, and the instruction's title."""
        i, core = self.at(number), self.cores[number]
        slot = self.launched.slots[core]
        return self.launched.where(core, i), slot.lnc_core, slot.rank, title(i)

    def original(self, number: int) -> Instruction:
        """The same, with its run-time addresses as the program has them."""
        program = self.launched.program(self.cores[number])
        if id(program) not in self._originals:
            self._originals[id(program)] = {i.ordinal: i for i in instructions(program.body)}
        return self._originals[id(program)][self.at(number).ordinal]

    def rendezvous(self, number: int) -> list[int]:
        """All instructions that exchanged messages with this one, itself included, ascending."""
        return sorted(self._met.get(number, (number,)))

    def before(self, number: int) -> int:
        """Up to where writes count for what the instruction read: a rank's cores may write to
        memory that they share until the last of them has come to a rendezvous."""
        rank = self.launched.slots[self.cores[number]].rank
        slots, cores = self.launched.slots, self.cores
        return max(n for n in self.rendezvous(number) if slots[cores[n]].rank == rank)

    def regions(self, number: int, accesses: Sequence[Access]) -> list[Region]:
        """The regions of operands of the instruction that began at a number."""
        slot = self.launched.slots[self.cores[number]]
        found = []
        for a in accesses:
            cached = self._rows.get((number, id(a))) or self._regions.get((slot.core, id(a)))
            if cached is None:
                cached = self._regions[slot.core, id(a)] = region(slot, a)
            found.append(cached)
        return found

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
        sources = set(map(id, index_sources(i)))
        found = [a for a in INSTRUCTIONS[i.opcode].reads(i) if id(a) not in sources]
        return self.regions(number, found)

    def parts_read(self, number: int, r: Region) -> np.ndarray | None:
        """The places of an operand of counts that are read, which isn't all of it; None for other
        operands."""
        i = self.at(number)
        spec, slot = INSTRUCTIONS[i.opcode], self.launched.slots[self.cores[number]]
        role = spec.roles[spec.counts] if spec.counts else None
        if not isinstance(role, Counts) or key_of(slot, i[spec.counts].storage) != r.key:
            return None
        return np.concatenate([region(slot, a).places for a in role.read(i)])

    def reader(self, key: Key, places: np.ndarray, after: int, before: int) -> int | None:
        """The first instruction between two numbers that read some bytes and wrote something of
        them elsewhere: one that prints them doesn't."""
        for n in range(after + 1, before):
            if self.instructions[n] is not None:
                reads, writes = self.reads(n), self.writes(n)
                read = (r.holds(places).any() for r in reads if r.key == key)
                if writes and all(r.key != key for r in writes) and any(read):
                    return n
        return None

    def operands(self, number: int) -> tuple[list[Region], list[Region]]:
        """What it reads (without addresses) and what it writes, sums of its engine included."""
        i = self.at(number)
        key = sums_key(self.launched.slots[self.cores[number]], i)
        sums = [] if key is None else [Sums(key, i.engine, 128)]
        return [*self.reads(number), *sums], [*self.writes(number), *sums]

    def left_by(
        self, key: Key, places: np.ndarray, before: int | None = None
    ) -> Iterator[tuple[int | None, np.ndarray]]:
        """The writes that left (sorted) bytes of a memory, the last one first.

        Args:
            before: only those before this number; None for all.

        Yields:
            The number of a write's end, and its bytes; None with those that nobody wrote.
        """
        numbers = self.written.get(key, ())
        for at in reversed(range(len(numbers) if before is None else bisect_left(numbers, before))):
            end = numbers[at]
            if end in self.unwritten or not places.size:
                break
            taken = np.full(places.shape, key[0] == "register")  # which have no bytes
            for r in self.operands(self.begun.get(end, end))[1]:
                if r.key == key:
                    taken |= r.holds(places)
            if taken.any():
                yield end, places[taken]
                places = places[~taken]
        if places.size:
            yield None, places
