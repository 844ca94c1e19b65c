"""Recording what watched instructions read and write in shared HBM, for the check of races.

A record holds the epoch (how many synchronisations the core has been through), which bytes of the
storage it is about, and their values: what was read, or what was there before and after a store.
Only instructions that the compiler put on the watch list are recorded; see
compiler.passes.conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from nki_dist.compiler.passes.conflicts import visible
from nki_dist.isa.gather import Runs, has_vector, indices
from nki_dist.isa.kit import Array, Kit
from nki_dist.linking.indirect import lowered
from nki_dist.ops.alignment import ALIGNMENT, padded
from nki_dist.ops.calls import Step
from nki_dist.program import Access, Instruction
from nki_dist.program.pattern import Pattern


def pattern_of(a: Access, kit: Kit) -> Pattern:
    """The elements of an access in order, of a vector offset those of the rows inside."""
    size = a.dtype.itemsize
    if a.dynamic is None or a.dynamic.kind != "vector":
        return Pattern.of(a)
    # A row outside the storage is refused, or skipped, when the instruction itself runs.
    runs = Runs.of(a)
    starts, inside = runs.starts(indices(kit.view(a.dynamic.source), a.shape[0]))
    return Pattern(starts[inside] * size, (), (), runs.length * size)


@dataclass(eq=False)
class Record:
    """One access of one execution.

    Attributes:
        key: ("shared" | "input", index) of the storage.
        epoch: synchronisations the core had been through.
        ordinal: of the instruction.
        pattern: which bytes of the storage, in elements or runs of them.
        before: elements before the access as unsigned integers, (*runs, elements of a run); those
            of one run if all have the same.
        after: the same after a store; None for a load.
    """

    key: tuple[str, int]
    epoch: int
    ordinal: int
    pattern: Pattern
    before: np.ndarray
    after: np.ndarray | None = None


class _Private(Kit):
    """A core's kit in which storages that are stored to are elsewhere."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit.bytes_of, kit.core, kit.arch)
        self.masks = kit.masks
        # By number: what is in place of the bytes of a storage, and which is the first of them.
        self.windows: dict[int, tuple[np.ndarray, int]] = {}

    def open(self, stores: Sequence[Access], loads: Sequence[Access]) -> None:
        """Have windows to storages that are stored to, with all that is accessed there."""
        spans: dict[int, tuple[int, int]] = {}
        for a in (*stores, *[a for a in loads if any(a.storage is b.storage for b in stores)]):
            # A vector offset may choose any row.
            low, high = (0, a.storage.nbytes) if has_vector(a) else a.span()
            least, most = spans.get(a.storage.number, (low, high))
            spans[a.storage.number] = min(least, low - low % ALIGNMENT), max(most, padded(high))
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
    """

    def __init__(self, kit: Kit, masked: Collection[int] = ()) -> None:
        self._kit, self._masked = kit, masked
        self._private = _Private(kit)
        self.records: list[Record] = []

    def wrapped(
        self, i: Instruction, step: Step, addressed: Callable[[Instruction], list[Instruction]]
    ) -> Step:
        """The step, recorded; `addressed` gives the parts of it whose addresses are inside."""

        def watched() -> None:
            stored = False
            for part in addressed(i):
                loads = {a: self._record(part, a) for a in visible(part, writes=False)}
                stores = {a: self._record(part, a) for a in visible(part, writes=True)}
                if stores:
                    self._store(part, loads, stores)
                    stored = True
            if not stored:
                step()

        return watched

    def take(self) -> list[Record]:
        """The records so far, which are the caller's from now on."""
        found, self.records = self.records, []
        self._private = _Private(self._kit)  # without the memory of private copies
        return found

    def _store(
        self, i: Instruction, loads: dict[Access, Record], stores: dict[Access, Record]
    ) -> None:
        self._private.open([*stores], [*loads])
        windows = self._private.windows
        # What the instruction may read of a storage that it writes.
        for a, record in (*stores.items(), *loads.items()):
            if window := windows.get(a.storage.number):
                size = a.dtype.itemsize
                record.pattern.put(record.before, window[0], size, window[1], f"u{size}")
        self._private.begin()
        self._private.step(lowered(i, self._private, self._masked))()
        for a, record in stores.items():
            (memory, base), size = windows[a.storage.number], a.dtype.itemsize
            record.after = compact(record.pattern.get(memory, size, base, f"u{size}"))
            where = self._kit.bytes_of(a.storage)
            record.pattern.put(record.after, where, size, 0, f"u{size}")

    def _record(self, i: Instruction, a: Access) -> Record:
        key, size, pattern = a.storage.key, a.dtype.itemsize, pattern_of(a, self._kit)
        epoch = self._kit.state.epochs.of(key)
        before = pattern.get(self._kit.bytes_of(a.storage), size, 0, f"u{size}")
        record = Record(key, epoch, i.ordinal, pattern, compact(before))
        self.records.append(record)
        return record


def compact(elements: np.ndarray) -> np.ndarray:
    """A copy; fresh memory costs more than a look at whether what nobody wrote is all the same."""
    first = elements[(slice(1),) * (elements.ndim - 1)]
    return (first if (elements == first).all() else elements).copy()
