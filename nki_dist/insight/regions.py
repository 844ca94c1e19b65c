"""Says which bytes of a memory an instruction's operand is, and reads and writes them.

Elements are named by their first byte within their storage. Rows that a vector offset chooses are
found where the offsets are known: while the instruction runs. A view through an index tile counts
as all columns that it could choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.forks import cached_property
from nki_dist.insight.replay import Key, key_of
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot, CoreState
from nki_dist.isa.effects import State
from nki_dist.isa.indirection import is_indirect, table
from nki_dist.isa.kit import Kit
from nki_dist.program import Access, Instruction, MemoryRegion, Storage, VirtualRegister
from nki_dist.program.pattern import Pattern
from nki_dist.program.walk import accesses, index_tensors, operands
from nki_dist.runtime.recorder import pattern_of
from nki_dist.timing.registers import registers_read, registers_written


@dataclass(eq=False)
class Region:
    """Elements of one storage.

    Attributes:
        key: names the memory among those of the launch.
        shape: in which they are read and written.
        pattern: which bytes of the storage they are.
    """

    key: Key
    storage: Storage
    dtype: DType
    shape: tuple[int, ...]
    pattern: Pattern

    @cached_property
    def places(self) -> np.ndarray:
        """First byte of each element, in the order of the pattern."""
        found, p = np.asarray(self.pattern.first, np.int64), self.pattern
        steps = [*zip(p.shape, p.strides), (p.run // self.dtype.itemsize, self.dtype.itemsize)]
        for n, stride in steps:
            found = np.add.outer(found, np.arange(n, dtype=np.int64) * stride)
        return np.asarray(found.reshape(-1))

    def get(self, kit: Kit) -> np.ndarray:
        """A copy of the elements' bits, in the shape of the region."""
        size, memory = self.dtype.itemsize, kit.bytes_of(self.storage)
        return np.array(self.pattern.get(memory, size, 0, f"u{size}")).reshape(self.shape)

    def put(self, kit: Kit, bits: np.ndarray) -> None:
        """Set the elements' bits."""
        size, p, memory = self.dtype.itemsize, self.pattern, kit.bytes_of(self.storage)
        runs = (*np.shape(p.first), *p.shape, p.run // size)
        p.put(bits.reshape(runs), memory, size, 0, f"u{size}")

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

    def holds(self, places: np.ndarray) -> np.ndarray:
        """Which of these bytes are of its elements."""
        if not self.places.size:
            return np.zeros(places.shape, bool)
        at = np.searchsorted(self._sorted, places, "right") - 1
        first = self._sorted[np.maximum(at, 0)]
        return np.asarray((at >= 0) & (places < first + self.dtype.itemsize))

    def covering(self, places: np.ndarray) -> np.ndarray:
        """Numbers of the elements that have some of these (sorted) bytes; the last where several
        lie in one place, because that one stays."""
        first = self.places
        at = np.searchsorted(places, first)
        at = np.minimum(at, places.size - 1)
        found = np.flatnonzero((places[at] >= first) & (places[at] < first + self.dtype.itemsize))
        if found.size < 2:
            return found
        _, last = np.unique(first[found][::-1], return_index=True)
        return np.sort(found[found.size - 1 - last])


class Sums(Region):
    """The accumulator registers of an engine, as a memory."""

    def __init__(self, key: Key, engine: str, partitions: int) -> None:
        storage = Storage(-1, MemoryRegion.sbuf, (partitions,), float32, f"sums of {engine}")
        super().__init__(key, storage, float32, (partitions,), Pattern(0, (partitions,), (4,), 4))
        self.engine = engine

    def get(self, kit: Kit) -> np.ndarray:
        count = self.shape[0]
        return kit.state.accumulator(self.engine, count).view(np.uint32).copy()

    def put(self, kit: Kit, bits: np.ndarray) -> None:
        kit.state.accumulator(self.engine, self.shape[0]).view(np.uint32)[...] = bits


def region(slot: CoreSlot, a: Access, kit: Kit | None = None) -> Region:
    """The region of an operand.

    Args:
        kit: where offsets of rows are looked up, needed where the access has some.
    """
    if is_indirect(a):
        a = table(a)
    vector = a.dynamic is not None and a.dynamic.kind == "vector"
    assert kit is not None or not vector, "rows are chosen at run time"
    pattern: Any = pattern_of(a, kit)  # type: ignore[arg-type]
    shape = (len(pattern.first) * pattern.run // a.dtype.itemsize,) if vector else a.shape
    return Region(key_of(slot, a.storage), a.storage, a.dtype, shape, pattern)


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
    return index_tensors(accesses(original))


def bits_of(value: Any, dtype: DType) -> Any:
    """A number as the bits of a type."""
    return np.asarray(value, dtype.storage).view(dtype.raw)
