"""Recording what watched instructions read and write in shared HBM, for the check of races.

A record holds the epoch (how many synchronisations the core has been through), the bytes' places in
the storage, and their values: what was read, or what was there before and after a store. Only
instructions that the compiler put on the watch list are recorded; see compiler.passes.conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.gather import Runs, indices
from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step
from nki_dist.program import Access, Instruction, Storage


@dataclass
class Record:
    """One access of one execution.

    Attributes:
        key: ("shared" | "input", index) of the storage.
        epoch: synchronisations the core had been through.
        ordinal: of the instruction.
        itemsize: bytes per element.
        places: byte offset of each element; of 4 bytes each where the storage lets them be.
        before: elements before the access.
        after: elements after a store; None for a load.
    """

    key: tuple[str, int]
    epoch: int
    ordinal: int
    itemsize: int
    places: np.ndarray
    before: np.ndarray
    after: np.ndarray | None


def places_of(a: Access, kit: Kit) -> np.ndarray:
    """Byte offset of every element of an access, of a vector offset those of the rows inside."""
    if a.dynamic is not None and a.dynamic.kind == "vector":
        # A row outside the storage is refused, or skipped, when the instruction itself runs.
        runs = Runs(a)
        starts, inside = runs.starts(indices(kit.view(a.dynamic.source), a.shape[0]))
        offsets = np.add.outer(starts[inside], np.arange(runs.length, dtype=np.int64))
    else:
        offsets = np.full((1,), a.offset, np.int64)
        for n, stride in zip(a.shape, a.strides):
            offsets = np.add.outer(offsets, np.arange(n, dtype=np.int64) * stride)
    # A launch keeps the places of every access: they are most of what it keeps.
    kind = np.int32 if a.storage.nbytes < 1 << 31 else np.int64
    return np.asarray(offsets.reshape(-1) * a.dtype.itemsize, kind)


class Recorder:
    """Records of one core.

    A watched store is carried out on a private copy first and published afterwards, so that what is
    recorded is what this core wrote, even if the other core stores to the same place meanwhile.
    """

    def __init__(self, kit: Kit, masked: Collection[int] = ()) -> None:
        self.kit = kit
        self._masked = masked
        self.records: list[Record] = []
        self._copies: dict[int, np.ndarray] = {}
        # By storage: a fresh copy for every store would be fresh pages of the system every time.
        self._spare: dict[int, np.ndarray] = {}
        private = partial(_private_bytes, kit, self._copies)  # no method: a cycle is freed late
        self._private = Kit(private, kit.core, kit.arch)

    def around(
        self, i: Instruction, step: Step, addressed: Callable[[Instruction], list[Instruction]]
    ) -> Step:
        """The step, recorded; `addressed` gives the parts of it whose addresses are inside."""
        spec = INSTRUCTIONS[i.opcode]

        def watched() -> None:
            stored = False
            for part in addressed(i):
                loads = [a for a in spec.reads(part) if _visible(a)]
                stores = [a for a in spec.writes(part) if _visible(a)]
                for a in loads:
                    self._record(part, a)
                if stores:
                    self._store(part, loads, stores)
                    stored = True
            if not stored:
                step()

        return watched

    def take(self) -> list[Record]:
        """The records so far, which are the caller's from now on."""
        found, self.records = self.records, []
        self._spare.clear()
        return found

    def _store(self, i: Instruction, loads: list[Access], stores: list[Access]) -> None:
        records = [self._record(i, a) for a in stores]
        self._copies.clear()  # of a launch that failed here
        for a in stores:
            number = a.storage.number
            if number not in self._spare:
                self._spare[number] = np.empty(a.storage.nbytes, np.uint8)
            self._copies[number] = self._spare[number]
        # What the instruction may read of a storage that it writes.
        for record, a in zip(records, stores):
            self._elements(a, self._private)[record.places // record.itemsize] = record.before
        for a in loads:
            if a.storage.number in self._copies:
                where = places_of(a, self.kit) // a.dtype.itemsize
                self._elements(a, self._private)[where] = self._elements(a, self.kit)[where]
        self._private.begin()
        self._private.step(INSTRUCTIONS[i.opcode].lower(i, self._private))()
        for record, a in zip(records, stores):
            where = record.places // record.itemsize
            record.after = self._elements(a, self._private)[where]
            self._elements(a, self.kit)[where] = record.after
        self._copies.clear()

    def _record(self, i: Instruction, a: Access) -> Record:
        places = places_of(a, self.kit)
        s = a.storage
        record = Record(
            s.key,
            self.kit.state.epochs.of(s.key),
            i.ordinal,
            a.dtype.itemsize,
            places,
            self._values(a, places),
            None,
        )
        self.records.append(record)
        return record

    def _elements(self, a: Access, kit: Kit) -> np.ndarray:
        """All elements of the access's storage, as unsigned integers of its dtype's size."""
        count = a.storage.nbytes // a.dtype.itemsize
        elements: np.ndarray = kit.raw(Access(a.storage, 0, (count,), (1,), a.dtype))
        return elements

    def _values(self, a: Access, places: np.ndarray) -> np.ndarray:
        return np.asarray(self._elements(a, self.kit)[places // a.dtype.itemsize])


def _private_bytes(kit: Kit, copies: Mapping[int, np.ndarray], storage: Storage) -> np.ndarray:
    copy = copies.get(storage.number)
    return kit.bytes_of(storage) if copy is None else copy


def _visible(a: Access) -> bool:
    """Whether the other core can see the storage."""
    return a.storage.role in ("shared", "input")
