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
from math import gcd, prod
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import RaceError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction, Program, Storage, instructions
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.recorder import Pattern, Record

APART: Final = (
    "give each core a range of its own, with an offset that depends on nl.program_id(0), or let "
    "one core store (`if nl.program_id(0) == 0:`); a barrier only chooses whose values are lost"
)


Near: TypeAlias = "list[list[tuple[Record, Pattern]]]"  # of each core, with its joined bytes


class _Cells:
    """Values of some cells of a part of a storage, which begins at byte `base`."""

    def __init__(self, base: int, count: int, unit: int) -> None:
        self._base, self._unit = base, unit
        self.known = np.zeros(count, bool)
        self.value = np.zeros(count, f"u{unit}")
        self.before = np.zeros(count, f"u{unit}")
        self.by = np.zeros(count, np.int32)  # ordinals of those that are known

    def store(self, record: Record) -> None:
        assert record.after is not None
        before = as_cells(record.before, self._unit)
        self._put(
            record,
            self.before,
            np.where(self.of(record, self.known), self.of(record, self.before), before),
        )
        self._put(record, self.value, as_cells(record.after, self._unit))
        self._put(record, self.known, True)
        self._put(record, self.by, record.ordinal)

    def of(self, record: Record, array: np.ndarray) -> Any:
        """Those of the cells of an array that a record has, in its order."""
        table, index = record.pattern.cells(array, self._unit, self._base)
        return table[index]

    def _put(self, record: Record, array: np.ndarray, values: Any) -> None:
        table, index = record.pattern.cells(array, self._unit, self._base)
        table[index] = values


def as_cells(values: np.ndarray, unit: int) -> np.ndarray:
    return values.view(f"u{unit}")


def _near(sides: Sequence[Sequence[Record]]) -> Near:
    """What lies in the other core's range of bytes; of loads, in the range of its stores."""
    joined = [[(record, record.pattern.joined()) for record in records] for records in sides]
    touched = [_range(found) for found in joined]
    stored = [_range([(r, p) for r, p in found if r.after is not None]) for found in joined]
    near: Near = []
    for core, found in enumerate(joined):
        near.append([])
        for record, pattern in found:
            low, high = _range([(record, pattern)])
            least, most = (stored if record.after is None else touched)[1 - core]
            if low < most and least < high:
                near[core].append((record, pattern))
    return near


def _range(found: Sequence[tuple[Record, Pattern]]) -> tuple[int, int]:
    spans = [pattern.span() for _, pattern in found]
    return min((low for low, _ in spans), default=0), max((high for _, high in spans), default=0)


def _meet(near: Near, base: int, end: int) -> bool:
    """Whether a core stored to a byte that the other one touched: without it, no more to do.

    Cores that work on halves of a large tensor with addresses known at run time are watched for
    nothing. All runs of bytes are whole multiples of some cell, which makes this cheap.
    """
    unit = gcd(*(pattern.unit(base) for found in near for _, pattern in found))
    touched, stored = np.zeros((2, 2, (end - base) // unit), bool)
    for core, found in enumerate(near):
        for record, pattern in found:
            for marks in (touched,) if record.after is None else (touched, stored):
                table, index = pattern.cells(marks[core], unit, base)
                table[index] = True
    return bool((stored & touched[::-1]).any())


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
        self.base, self.count, self.unit = 0, 0, 1  # of the part that both cores touch, in bytes

    def _only(self) -> str:
        """What a barrier of the program doesn't do, if it has one."""
        program = self.programs[0]
        met = (i for i in instructions(program.body) if INSTRUCTIONS[i.opcode].synchronises)
        barriers = any(ordering(program, i)[1] is not None for i in met)
        return "; a barrier orders accesses to its `data` only" if barriers else ""

    def run(self, sides: Sequence[Sequence[Record]]) -> None:
        self.unit = min(record.itemsize for records in sides for record in records)
        near = _near(sides)
        self.base, end = _range([one for found in near for one in found])
        if not all(near) or not _meet(near, self.base, end):
            return
        sides = [[record for record, _ in found] for found in near]
        self.count = (end - self.base) // self.unit
        final = []
        for records in sides:
            stored = self._cells()
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
            self._loads(core, sides[core], final[1 - core])

    def _cells(self) -> _Cells:
        return _Cells(self.base, self.count, self.unit)

    def _loads(self, core: int, records: Sequence[Record], theirs: _Cells) -> None:
        if all(record.after is not None for record in records):
            return
        own = self._cells()
        for record in records:
            if record.after is not None:
                own.store(record)
                continue
            seen, value = as_cells(record.before, self.unit), theirs.of(record, theirs.value)
            mine = own.of(record, own.known) & (own.of(record, own.value) == value)
            unordered = theirs.of(record, theirs.known) & ~mine
            lucky = (seen == value) & (theirs.of(record, theirs.before) != value)
            bad = unordered & ((seen != value) | lucky)
            if bad.any():
                at = int(own.of(record, np.arange(self.count))[bad][0])
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
        at = self.base + cell * self.unit
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
