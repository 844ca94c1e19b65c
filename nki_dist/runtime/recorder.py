"""Recording what watched instructions read and write in shared HBM, for the check of races.

A record holds the epoch (how many synchronisations the core has been through), which bytes of the
storage it is, and their values: what was read, or what was there before and after a store. Only
instructions that the compiler put on the watch list are recorded; see compiler.passes.conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nki_dist.compiler.passes.conflicts import visible
from nki_dist.hbm.alignment import ALIGNMENT, padded
from nki_dist.isa.gather import Runs, has_vector, indices
from nki_dist.isa.kit import Array, Kit
from nki_dist.linking.indirect import lowered
from nki_dist.ops.calls import Step
from nki_dist.program import Access, Instruction


class Pattern(NamedTuple):
    """Bytes of a storage: runs of equal length, at intervals or anywhere.

    Attributes:
        first: first byte; an array with that of each run where a vector offset chose them.
        shape: how many runs, in each dimension; empty where `first` is an array.
        strides: bytes between them.
        run: bytes of a run.
    """

    first: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    run: int

    def cells(self, array: np.ndarray, unit: int, base: int = 0) -> tuple[np.ndarray, Any]:
        """(table, index) such that `table[index]` are these of an array with a value per cell.

        Args:
            array: values of all cells, one-dimensional and contiguous.
            unit: bytes of a cell, of which runs and the distances between them are multiples.
            base: the byte where the first cell begins.
        """
        size, count, first = array.itemsize, self.run // unit, (self.first - base) // unit
        if isinstance(first, np.ndarray):
            shape = max(array.size - count + 1, 0), count
            return np.ndarray(shape, array.dtype, array, 0, (size, size)), first
        strides = *[s // unit * size for s in self.strides], size
        shape = *self.shape, count
        return np.ndarray(shape, array.dtype, array, first * size, strides), ...

    def joined(self) -> Pattern:
        """The same bytes, in any order, as fewer and longer runs."""
        run, steps = self.run, []
        for stride, n in sorted((abs(s), n) for n, s in zip(self.shape, self.strides)):
            if stride <= run and not steps:
                run += (n - 1) * stride
            elif n > 1:
                steps.append((n, stride))
        first = self.first + sum((n - 1) * min(s, 0) for n, s in zip(self.shape, self.strides))
        return Pattern(first, tuple([n for n, _ in steps]), tuple([s for _, s in steps]), run)

    def span(self) -> tuple[int, int]:
        """First byte, and the one past the last, of joined runs; the same if there are none."""
        if not np.size(self.first):
            return 0, 0
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + self.run
        return int(np.min(self.first)), int(np.max(self.first)) + reach

    def unit(self, base: int) -> int:
        """Bytes of the largest cells, counted from `base`, of which joined runs consist."""
        return gcd(self.run, *self.strides, int(np.gcd.reduce(self.first - base)))


def pattern_of(a: Access, kit: Kit) -> Pattern:
    """The elements of an access in order, of a vector offset those of the rows inside."""
    size = a.dtype.itemsize
    if not has_vector(a):
        return Pattern(a.offset * size, a.shape, tuple([s * size for s in a.strides]), size)
    # A row outside the storage is refused, or skipped, when the instruction itself runs.
    runs = Runs(a)
    starts, inside = runs.starts(indices(kit.view(a.dynamic.source), a.shape[0]))
    return Pattern(starts[inside] * size, (), (), runs.length * size)


@dataclass
class Record:
    """One access of one execution.

    Attributes:
        key: ("shared" | "input", index) of the storage.
        epoch: synchronisations the core had been through.
        ordinal: of the instruction.
        itemsize: bytes per element.
        pattern: which bytes of the storage.
        before: elements before the access, (runs..., elements of a run).
        after: the same after a store; None for a load.
    """

    key: tuple[str, int]
    epoch: int
    ordinal: int
    itemsize: int
    pattern: Pattern
    before: np.ndarray
    after: np.ndarray | None = None


_Of: TypeAlias = "tuple[Access, Record]"


class _Private(Kit):
    """A core's kit in which some storages are elsewhere.

    Attributes:
        windows: by a storage's number, what is in place of its bytes and the first of these.
    """

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit.bytes_of, kit.core, kit.arch)
        self.masks = kit.masks
        self.windows: dict[int, tuple[np.ndarray, int]] = {}

    def open(self, stores: Sequence[Access], loads: Sequence[Access]) -> None:
        """Have windows to all that is stored to, instead of others."""
        spans: dict[int, tuple[int, int]] = {}
        numbers = {a.storage.number for a in stores}
        for a in [*stores, *loads]:
            # A vector offset may choose any row.
            low, high = (0, a.storage.nbytes) if has_vector(a) else a.span()
            low -= low % ALIGNMENT
            if (number := a.storage.number) in numbers:
                least, most = spans.get(number, (low, high))
                spans[number] = min(least, low), max(most, padded(high))
        memory = self.workspace.bytes(sum(most - least for least, most in spans.values()))
        self.windows.clear()
        for number, (least, most) in spans.items():
            self.windows[number], memory = (memory[: most - least], least), memory[most - least :]

    def _array(self, a: Access, dtype: np.dtype) -> Array:
        if a.storage.number not in self.windows:
            return super()._array(a, dtype)
        (memory, first), size = self.windows[a.storage.number], dtype.itemsize
        strides = tuple([s * size for s in a.strides])
        return np.ndarray(a.shape, dtype, memory, a.offset * size - first, strides)


class Recorder:
    """Records of one core.

    A watched store is carried out on a private copy first and published afterwards, so that what is
    recorded is what this core wrote, even if the other core stores to the same place meanwhile.

    Args:
        kit: of the core.
        masked: see linking.indirect.lowered.
    """

    def __init__(self, kit: Kit, masked: Collection[int] = ()) -> None:
        self._kit, self._masked = kit, masked
        self._private = _Private(kit)
        self._records: list[Record] = []

    def around(
        self, i: Instruction, step: Step, addressed: Callable[[Instruction], list[Instruction]]
    ) -> Step:
        """The step, recorded; `addressed` gives the parts of it whose addresses are inside."""

        def watched() -> None:
            stored = False
            for part in addressed(i):
                loads = [(a, self._record(part, a)) for a in visible(part, writes=False)]
                stores = [(a, self._record(part, a)) for a in visible(part, writes=True)]
                if stores:
                    self._store(part, loads, stores)
                    stored = True
            if not stored:
                step()

        return watched

    def take(self) -> list[Record]:
        """The records so far, which are the caller's from now on."""
        found, self._records = self._records, []
        self._private = _Private(self._kit)  # without the memory of private copies
        return found

    def _store(self, i: Instruction, loads: Sequence[_Of], stores: Sequence[_Of]) -> None:
        private = self._private
        private.open([a for a, _ in stores], [a for a, _ in loads])
        # What the instruction may read of a storage that it writes.
        for a, record in [*stores, *loads]:
            if window := private.windows.get(a.storage.number):
                table, index = _elements(record, *window)
                table[index] = record.before
        private.begin()
        private.step(lowered(i, private, self._masked))()
        for a, record in stores:
            table, index = _elements(record, *private.windows[a.storage.number])
            record.after = np.array(table[index], order="C")
            table, index = _elements(record, self._kit.bytes_of(a.storage))
            table[index] = record.after

    def _record(self, i: Instruction, a: Access) -> Record:
        key, pattern = a.storage.key, pattern_of(a, self._kit)
        epoch = self._kit.state.epochs.of(key)
        record = Record(key, epoch, i.ordinal, a.dtype.itemsize, pattern, np.empty(0))
        table, index = _elements(record, self._kit.bytes_of(a.storage))
        record.before = np.array(table[index], order="C")
        self._records.append(record)
        return record


def _elements(record: Record, memory: np.ndarray, base: int = 0) -> tuple[np.ndarray, Any]:
    """(table, index) of a record's elements in memory with bytes of its storage from `base` on."""
    size = record.itemsize
    typed = np.ndarray(memory.size // size, f"u{size}", memory)
    return record.pattern.cells(typed, size, base)
