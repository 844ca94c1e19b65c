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
from collections.abc import Iterable, Mapping, Sequence
from math import gcd, prod
from typing import Any, Final

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import RaceError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Program, Storage, instructions
from nki_dist.program.pattern import Pattern
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.recorder import Record

GRID: Final = (64, 96)  # rows and columns of a picture, at most
APART: Final = (
    "give each core a range of its own, with an offset that depends on nl.program_id(0), or let "
    "one core store (`if nl.program_id(0) == 0:`); a barrier only chooses whose values are lost"
)


class _Cells:
    """What a core stored in a part of a storage, which begins at byte `base`."""

    def __init__(self, records: Sequence[Record], count: int, unit: int, base: int) -> None:
        self._at = unit, base
        self.stored = np.zeros(count, bool)
        self.value = np.zeros(count, f"u{unit}")
        self.before = np.zeros(count, f"u{unit}")
        self.by = np.zeros(count, np.int32)  # ordinals of those that are known
        for record in records:
            self.store(record)

    def store(self, record: Record) -> None:
        """Take it in if it is a store."""
        if record.after is None:
            return
        stored, before = self.of(record, self.stored), self.of(record, self.before)
        before = np.where(stored, before, record.before.view(self.before.dtype))
        after = record.after.view(self.value.dtype)
        arrays = self.before, self.value, self.stored, self.by
        for array, new in zip(arrays, (before, after, True, record.ordinal)):
            record.pattern.put(new, array, *self._at)

    def of(self, record: Record, array: np.ndarray) -> np.ndarray:
        """Those of the cells of an array that a record has, in its order."""
        return record.pattern.get(array, *self._at)


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
        # Cells of the part that is looked at: its first byte, how many there are, bytes of one.
        self.base, self.count, self.unit = 0, 0, 1
        self.near: list[dict[Record, Pattern]] = []

    def _only(self) -> str:
        """What a barrier of the program doesn't do, if it has one."""
        program = self.programs[0]
        met = (i for i in instructions(program.body) if INSTRUCTIONS[i.opcode].synchronises)
        barriers = any(ordering(program, i)[1] is not None for i in met)
        return "; a barrier orders accesses to its `data` only" if barriers else ""

    def run(self, sides: Sequence[Sequence[Record]]) -> None:
        self.unit = min(record.before.itemsize for records in sides for record in records)
        near = _near(sides)
        self.base, end = _range([pattern for found in near for pattern in found.values()])
        if not all(near) or not _meet(near, self.base, end):
            return
        self.near = near
        sides, self.count = [list(found) for found in near], (end - self.base) // self.unit
        final = [self._cells(records) for records in sides]
        differ = final[0].stored & final[1].stored & (final[0].value != final[1].value)
        if differ.any():
            at = int(np.flatnonzero(differ)[0])
            first, second = (int(cells.by[at]) for cells in final)
            extent = self._extent(first, second, int(differ.sum()))
            self._race("store", first, 0, second, at, differ, APART + self._only(), extent)
        for core in (0, 1):
            self._loads(core, sides[core], final[1 - core])

    def _cells(self, records: Sequence[Record]) -> _Cells:
        return _Cells(records, self.count, self.unit, self.base)

    def _loads(self, core: int, records: Sequence[Record], theirs: _Cells) -> None:
        if all(record.after is not None for record in records):
            return
        stores = self._cells(())
        for record in records:
            stores.store(record)
            if record.after is not None:
                continue
            seen, value = record.before.view(stores.value.dtype), theirs.of(record, theirs.value)
            mine = stores.of(record, stores.stored) & (stores.of(record, stores.value) == value)
            unordered = theirs.of(record, theirs.stored) & ~mine
            lucky = (seen == value) & (theirs.of(record, theirs.before) != value)
            bad = unordered & ((seen != value) | lucky)
            if bad.any():
                found = stores.of(record, np.arange(self.count))[bad]
                cells, at = np.zeros(self.count, bool), int(found[0])
                cells[found] = True
                hint = (
                    f"put nisa.core_barrier({self.storage.title}, (0, 1)) between the store and "
                    f"the load, where both cores run it{self._only()}"
                )
                self._race("load", record.ordinal, core, int(theirs.by[at]), at, cells, hint)

    def _extent(self, first: int, second: int, cells: int) -> str:
        """How much two stores disagree about: in any order, one core's values would be lost."""
        elements = -(-cells * self.unit // self.storage.dtype.itemsize)
        lines = {_where(program, n)[1] for program, n in zip(self.programs, (first, second))}
        who = "both cores run that line, and " if len(lines) == 1 else ""
        return f"; {who}{elements} of {prod(self.storage.shape)} elements get different values"

    def _race(
        self,
        what: str,
        ordinal: int,
        core: int,
        theirs: int,
        cell: int,
        cells: np.ndarray,
        hint: str,
        extent: str = "",
    ) -> None:
        """Of an access and a store of the other core, `theirs`, about `cells`, such as `cell`."""
        at = self.base + cell * self.unit
        name, line = _where(self.programs[core], ordinal)
        other, there = _where(self.programs[1 - core], theirs)
        raise RaceError(
            f"nothing orders a {what} by core {core} ({name} at {line}) and a store by core "
            f"{1 - core} ({other} at {there}): both touch byte {at} of {self.storage.label}"
            f"{_element(self.storage, at)}, and the value depends on which comes first{extent}",
            location=line,
            core=f"rank {self.rank} core {core}" if self.rank else core,
            instruction=name,
            hint=hint,
            policy="check='races=warn' makes this a warning, 'races=off' doesn't look",
            picture={
                "kind": "overlap",
                "label": self.storage.label,
                "shape": list(self.storage.shape),
                **self._grid(cells),
                "sides": sorted(
                    [
                        {"name": f"core {core}", "what": f"{name}, a {what}", "line": line},
                        {"name": f"core {1 - core}", "what": f"{other}, a store", "line": there},
                    ],
                    key=lambda side: str(side["name"]),
                ),
            },
        )

    def _grid(self, cells: np.ndarray) -> dict[str, Any]:
        """The tensor with what each core touches, as `codes.picture` wants it."""
        s = self.storage
        touched = np.zeros((2, s.nbytes // self.unit), np.uint8)
        for core, found in enumerate(self.near):
            for pattern in found.values():
                pattern.put(True, touched[core], self.unit)
        every = touched[0] + 2 * touched[1]
        every[self.base // self.unit :][: len(cells)][cells] = 4
        every = np.repeat(every, max(self.unit // s.dtype.itemsize, 1))
        every = every.reshape(-1, max(s.dtype.itemsize // self.unit, 1)).max(1)
        every = every.reshape(-1, s.shape[-1])
        down, across = (-(-n // most) for n, most in zip(every.shape, GRID))
        padded = np.pad(every, [(0, -n % k) for n, k in zip(every.shape, (down, across))])
        rows, columns = padded.shape[0] // down, padded.shape[1] // across
        grid = padded.reshape(rows, down, columns, across).max((1, 3))
        return {"grid": ["".join(map(str, row)) for row in grid.tolist()], "cell": [down, across]}


def _near(sides: Sequence[Sequence[Record]]) -> list[dict[Record, Pattern]]:
    """Of each core what lies in the range of bytes that both reach, and the joined bytes of it."""
    joined = [{record: record.pattern.joined() for record in records} for records in sides]
    lows, highs = zip(*[_range(found.values()) for found in joined])
    return [
        {r: p for r, p in found.items() if p.span()[0] < min(highs) and max(lows) < p.span()[1]}
        for found in joined
    ]


def _range(patterns: Iterable[Pattern]) -> tuple[int, int]:
    spans = [pattern.span() for pattern in patterns] or [(0, 0)]
    return min(low for low, _ in spans), max(high for _, high in spans)


def _meet(near: Sequence[Mapping[Record, Pattern]], base: int, end: int) -> bool:
    """Whether a core stored to a byte that the other one touched: without it, no more to do.

    Cores that work on halves of a large tensor with addresses known at run time are watched for
    nothing. All runs consist of whole cells of some size, mostly of a row or more.
    """
    unit = gcd(*[pattern.unit(base) for found in near for pattern in found.values()])
    touched, stored = np.zeros((2, 2, (end - base) // unit), bool)
    for core, found in enumerate(near):
        for record, pattern in found.items():
            pattern.put(True, touched[core], unit, base)
            if record.after is not None:
                pattern.put(True, stored[core], unit, base)
    return bool((stored & touched[::-1]).any())


def _where(program: Program, ordinal: int) -> tuple[str, str | None]:
    """What an instruction is called, and its line."""
    i = next(i for i in instructions(program.body) if i.ordinal == ordinal)
    return f"nisa.{i.opcode}", program.where(i.location)


def _element(storage: Storage, at: int) -> str:
    index = np.unravel_index(at // storage.dtype.itemsize, storage.shape)
    return f" (element {[int(n) for n in index]})"
