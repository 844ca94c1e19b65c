"""Telling races from harmless overlaps, by value.

Two cores of a rank touched the same bytes of a shared tensor in the same epoch, with nothing to
order them. It is a race if another order could have given other values:

- two stores: they left different bytes;
- a load and the other core's store: the store leaves other bytes than were read, or it changed them
  and the load happened to come later (unless the loading core had stored the same bytes itself).

Both cores storing the same bytes, as published kernels do, is none.

Bytes are compared in cells of the smallest element that was used to touch the storage: elements
begin at multiples of their size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import RaceError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction, Program, Storage, instructions
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.recorder import Record

APART: Final = (
    "give each core a range of its own, with an offset that depends on nl.program_id(0), or let "
    "one core store (`if nl.program_id(0) == 0:`); a barrier only chooses whose values are lost"
)


class _Cells:
    """Values of some cells of a storage."""

    def __init__(self, count: int, unit: int) -> None:
        self.unit = unit
        self.known = np.zeros(count, bool)
        self.value = np.zeros(count, f"u{unit}")
        self.before = np.zeros(count, f"u{unit}")
        self.by = np.zeros(count, np.int32)  # ordinals of those that are known

    def store(self, record: Record) -> None:
        assert record.after is not None
        cells = spread(record, self.unit)
        fresh = ~self.known[cells]
        self.before[cells[fresh]] = as_cells(record.before, self.unit)[fresh]
        self.value[cells] = as_cells(record.after, self.unit)
        self.known[cells] = True
        self.by[cells] = record.ordinal


def spread(record: Record, unit: int) -> np.ndarray:
    """Number of every cell of a record."""
    first = record.places // unit
    if record.itemsize == unit:
        return first
    return (first[:, None] + np.arange(record.itemsize // unit, dtype=first.dtype)).reshape(-1)


def as_cells(values: np.ndarray, unit: int) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"u{unit}")


@uncollected()  # every instruction of two cores may have its record
def check_races(compiled: Compiled, records: Mapping[int, Sequence[Record]], rank: int) -> None:
    """Compare what the two cores of a rank did.

    Args:
        records: per core of the rank, in program order.

    Raises:
        RaceError: for the first conflict found.
    """
    if len(records) != 2:
        return
    groups: dict[Any, tuple[list[Record], list[Record]]] = defaultdict(lambda: ([], []))
    for core, found in records.items():
        for record in found:
            groups[record.epoch, record.key][core].append(record)
    for (_, key), sides in sorted(groups.items(), key=lambda item: item[0]):
        if sides[0] and sides[1]:
            _Check(compiled, key, rank).run(sides)


class _Check:
    """One storage in one epoch."""

    def __init__(self, compiled: Compiled, key: tuple[str, int], rank: int) -> None:
        self.programs = compiled.programs
        self.storage = next(s for s in compiled.programs[0].storages if s.key == key)
        self.rank = rank
        self.unit = 1

    def _only(self) -> str:
        """What a barrier of the program doesn't do, if it has one."""
        program = self.programs[0]
        met = (i for i in instructions(program.body) if INSTRUCTIONS[i.opcode].synchronises)
        barriers = any(ordering(program, i)[1] is not None for i in met)
        return "; a barrier orders accesses to its `data` only" if barriers else ""

    def run(self, sides: tuple[list[Record], list[Record]]) -> None:
        self.unit = min(record.itemsize for records in sides for record in records)
        count = self.storage.nbytes // self.unit
        if not self._meet(sides, count):
            return
        final = []
        for records in sides:
            stored = _Cells(count, self.unit)
            for record in records:
                if record.after is not None:
                    stored.store(record)
            final.append(stored)
        both = final[0].known & final[1].known
        differ = both & (final[0].value != final[1].value)
        if differ.any():
            at = int(np.flatnonzero(differ)[0])
            first, second = (int(cells.by[at]) for cells in final)
            extent = self._extent(first, second, int(differ.sum()))
            self._race("store", first, 0, "store", second, at, APART + self._only(), extent)
        for core in (0, 1):
            self._loads(core, sides[core], final[1 - core], count)

    def _meet(self, sides: tuple[list[Record], list[Record]], count: int) -> bool:
        """Whether a core stored to a cell that the other one touched: without it, no more to do.

        Cores that work on halves of a large tensor with addresses known at run time are watched
        for nothing; this is several times cheaper than comparing values.
        """
        touched, stored = np.zeros((2, 2, count), bool)
        for core, records in enumerate(sides):
            for record in records:
                cells = spread(record, self.unit)
                touched[core, cells] = True
                if record.after is not None:
                    stored[core, cells] = True
        return bool((stored & touched[::-1]).any())

    def _loads(self, core: int, records: list[Record], theirs: _Cells, count: int) -> None:
        if all(record.after is not None for record in records):
            return
        own = _Cells(count, self.unit)
        for record in records:
            if record.after is not None:
                own.store(record)
                continue
            cells, seen = spread(record, self.unit), as_cells(record.before, self.unit)
            value = theirs.value[cells]
            mine = own.known[cells] & (own.value[cells] == value)
            unordered = theirs.known[cells] & ~mine
            lucky = (seen == value) & (theirs.before[cells] != value)
            bad = unordered & ((seen != value) | lucky)
            if bad.any():
                at = int(cells[np.flatnonzero(bad)[0]])
                hint = (
                    f"put nisa.core_barrier({self.storage.title}, (0, 1)) between the store and "
                    f"the load, where both cores run it{self._only()}"
                )
                self._race("load", record.ordinal, core, "store", int(theirs.by[at]), at, hint)

    def _extent(self, first: int, second: int, cells: int) -> str:
        """How much two stores disagree about: in any order, one core's values would be lost."""
        elements = -(-cells * self.unit // self.storage.dtype.itemsize)
        lines = {_line(program, n) for program, n in zip(self.programs, (first, second))}
        who = "both cores run that line, and " if len(lines) == 1 else ""
        return f"; {who}{elements} of {prod(self.storage.shape)} elements get different values"

    def _race(
        self,
        what: str,
        ordinal: int,
        core: int,
        other: str,
        theirs: int,
        cell: int,
        hint: str,
        extent: str = "",
    ) -> None:
        at = cell * self.unit
        here, there = self.programs[core], self.programs[1 - core]
        raise RaceError(
            f"nothing orders a {what} by core {core} (nisa.{_opcode(here, ordinal)} at "
            f"{_line(here, ordinal)}) and a {other} by core {1 - core} "
            f"(nisa.{_opcode(there, theirs)} at {_line(there, theirs)}): both touch byte {at} of "
            f"{self.storage.label}{_element(self.storage, at)}, and the value depends on which "
            f"comes first{extent}",
            location=_line(here, ordinal),
            core=f"rank {self.rank} core {core}" if self.rank else core,
            instruction=f"nisa.{_opcode(here, ordinal)}",
            hint=hint,
            policy="check='races=warn' makes this a warning, 'races=off' doesn't look",
        )


def _find(program: Program, ordinal: int) -> Instruction:
    return next(i for i in instructions(program.body) if i.ordinal == ordinal)


def _opcode(program: Program, ordinal: int) -> str:
    return _find(program, ordinal).opcode


def _line(program: Program, ordinal: int) -> str | None:
    return program.where(_find(program, ordinal).location)


def _element(storage: Storage, at: int) -> str:
    index = np.unravel_index(at // storage.dtype.itemsize, storage.shape)
    return f" (element {[int(n) for n in index]})"
