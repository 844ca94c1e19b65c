"""Which elements of a memory an instruction's operand is, and reading and writing them.

Elements are named by their first byte within their storage. Rows that a vector offset chooses are
found where the offsets are known: while the instruction runs. A view through an index tile counts
as all columns that it could choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.forks import cached_property
from nki_dist.insight.replay import Hooks, Key, Place, key_of
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot, CoreState
from nki_dist.isa.effects import State
from nki_dist.isa.indirection import is_indirect, table
from nki_dist.isa.kit import Kit
from nki_dist.program import Access, Instruction, Storage, VirtualRegister
from nki_dist.program.walk import operands
from nki_dist.runtime.recorder import pattern_of
from nki_dist.timing.registers import registers_read, registers_written


@dataclass(eq=False)
class Region:
    """Elements of one storage.

    Attributes:
        key: names the memory among those of the launch.
        access: the pattern, if it is known without values.
        rows: else the first byte of each element.
    """

    key: Key
    storage: Storage
    dtype: DType
    access: Access | None
    rows: np.ndarray | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.access.shape if self.access is not None else (self.places.size,)

    @cached_property
    def places(self) -> np.ndarray:
        """First byte of each element, in the order of the pattern."""
        if self.access is None:
            assert self.rows is not None
            return self.rows
        offsets = np.full((1,), self.access.offset, np.int64)
        for n, stride in zip(self.access.shape, self.access.strides):
            offsets = np.add.outer(offsets, np.arange(n, dtype=np.int64) * stride)
        return np.asarray(offsets.reshape(-1) * self.dtype.itemsize)

    def get(self, kit: Kit) -> np.ndarray:
        """A copy of the elements' bits, in the shape of the region."""
        if self.access is not None:
            return np.array(kit.raw(self.access), order="C")
        return np.asarray(self._all(kit)[self.places // self.dtype.itemsize])

    def put(self, kit: Kit, bits: np.ndarray) -> None:
        """Set the elements' bits."""
        if self.access is not None:
            kit.raw(self.access)[...] = bits
        else:
            self._all(kit)[self.places // self.dtype.itemsize] = bits

    def _all(self, kit: Kit) -> np.ndarray:
        count = self.storage.nbytes // self.dtype.itemsize
        elements: np.ndarray = kit.raw(Access(self.storage, 0, (count,), (1,), self.dtype))
        return elements

    def values(self, bits: np.ndarray) -> np.ndarray:
        """Bits as numbers of the elements' type."""
        return np.ascontiguousarray(bits).view(self.dtype.dtype).reshape(self.shape)

    def bytes_of(self, elements: np.ndarray) -> np.ndarray:
        """All bytes of some elements, given by their numbers in the region."""
        first = self.places[elements]
        return np.unique(np.add.outer(first, np.arange(self.dtype.itemsize)).reshape(-1))

    @cached_property
    def _sorted(self) -> np.ndarray:
        return np.sort(self.places)

    def holds(self, wanted: np.ndarray) -> np.ndarray:
        """Which of these bytes are of its elements."""
        if not self.places.size:
            return np.zeros(wanted.shape, bool)
        at = np.searchsorted(self._sorted, wanted, "right") - 1
        first = self._sorted[np.maximum(at, 0)]
        return np.asarray((at >= 0) & (wanted < first + self.dtype.itemsize))

    def covering(self, wanted: np.ndarray) -> np.ndarray:
        """Numbers of the elements that have some of these (sorted) bytes; the last where several
        lie in one place, because that one stays."""
        first = self.places
        at = np.searchsorted(wanted, first)
        at = np.minimum(at, wanted.size - 1)
        found = np.flatnonzero((wanted[at] >= first) & (wanted[at] < first + self.dtype.itemsize))
        if found.size < 2:
            return found
        _, last = np.unique(first[found][::-1], return_index=True)
        return np.sort(found[found.size - 1 - last])


def region(slot: CoreSlot, a: Access, kit: Kit | None = None) -> Region:
    """The region of an operand.

    Args:
        kit: where offsets of rows are looked up, needed where the access has some.
    """
    key = key_of(slot, a.storage)
    if is_indirect(a):
        a = table(a)
    elif a.dynamic is not None and a.dynamic.kind == "vector":
        assert kit is not None, "rows are chosen at run time"
        rows = pattern_of(a, kit)
        places = np.add.outer(rows.first, np.arange(0, rows.run, a.dtype.itemsize))
        return Region(key, a.storage, a.dtype, None, places.reshape(-1))
    return Region(key, a.storage, a.dtype, a)


def after_writes(
    place: Place, accesses: Sequence[Access], told: Callable[[int, list[Region]], Any]
) -> Hooks:
    """Hooks that call `told(number, regions)` when an instruction has written these operands."""
    regions: list[Region] = []

    def before(number: int) -> None:  # rows are chosen by what is there now
        regions[:] = [region(place.slot, a, place.kit) for a in accesses]

    return before, lambda number: told(number, regions)


def follow(state: CoreState, theirs: CoreState) -> None:
    """Have the registers and random words of another state of the same core."""
    state.registers[:] = theirs.registers
    for engine, words in theirs.random.items():
        state.words(engine, words.copy)[...] = words


def sums_key(slot: CoreSlot, i: Instruction) -> Key | None:
    """The accumulator registers that an instruction changes or depends on."""
    effects = INSTRUCTIONS[i.opcode].effects
    if effects.state is not State.SUMS or not effects.states(i):
        return None
    return ("sums", slot.core, i.engine)


def written_keys(slot: CoreSlot, i: Instruction) -> list[Key]:
    """The memories, registers and sums that an instruction writes."""
    spec, sums = INSTRUCTIONS[i.opcode], sums_key(slot, i)
    keys: list[Key] = [key_of(slot, a.storage) for a in spec.writes(i)]
    keys += [("register", slot.core, n) for n in registers_written(i, spec)]
    return list(dict.fromkeys(keys if sums is None else [*keys, sums]))


def read_registers(slot: CoreSlot, original: Instruction) -> list[Key]:
    """Registers that an instruction reads, as operands and for addresses.

    Args:
        original: with its run-time addresses.
    """
    numbers = registers_read(original, INSTRUCTIONS[original.opcode])
    for _, a in operands(original.args):
        if a.dynamic is not None and isinstance(a.dynamic.source, VirtualRegister):
            numbers.add(a.dynamic.source.number)
    return [("register", slot.core, n) for n in sorted(numbers)]


def index_sources(original: Instruction) -> list[Access]:
    """Tensors that hold an instruction's run-time addresses."""
    return [
        a.dynamic.source
        for _, a in operands(original.args)
        if a.dynamic is not None and isinstance(a.dynamic.source, Access)
    ]


def bits_of(value: Any, dtype: DType) -> Any:
    """A number as the bits of a type."""
    return np.asarray(value, dtype.storage).view(dtype.raw)
