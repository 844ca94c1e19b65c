"""Single operations, run again and again on memories that a test fills: what they read and write.

A `Sample` is an operation with the memory that it finds in its program. `faults` holds what its
function declares against what it does: bytes that it isn't declared to write stay as they are, and
bytes that it isn't declared to read don't matter, inside and outside of its arguments.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_dist.dtypes.scratch import Scratch
from nki_dist.errors import NkiError
from nki_dist.linking.lowering import Slot
from nki_dist.ops.function import Function
from nki_dist.ops.operation import Operation, RegisterNumber
from nki_dist.ops.place import Place, Space

BYTES = (0x00, 0xFF)  # that fill what isn't read, besides random ones


@dataclass
class Memory:
    """All that operations can read or write.

    Attributes:
        spaces: bytes by space.
        registers: what they hold.
        printed: what has been seen outside.
    """

    spaces: dict[Space, np.ndarray]
    registers: list[int] = field(default_factory=list)
    printed: list[Any] = field(default_factory=list)
    rank: int = 0

    def copy(self) -> Memory:
        spaces = {space: memory.copy() for space, memory in self.spaces.items()}
        return Memory(spaces, list(self.registers), list(self.printed), self.rank)

    def array(self, p: Place) -> np.ndarray:
        """The array that a place becomes."""
        return np.ndarray(p.shape, p.dtype, self.spaces[p.space], p.offset, p.strides)

    def print(self, prefix: str, array: np.ndarray) -> None:
        self.printed.append((prefix, array.tobytes()))

    def argument(self, a: Any) -> Any:
        """What an operation is given."""
        if type(a) is Place:
            return self.array(a)
        if a is Slot.REGISTERS:
            return self.registers
        if a is Slot.RANK:
            return self.rank
        return self if a is Slot.WIRES else a

    def run(self, o: Operation) -> None:
        """Carry out an operation."""
        with np.errstate(all="ignore"):
            o.function.within(Scratch())(*map(self.argument, o.arguments))


class Touched:
    """Bytes and registers among an operation's arguments with these numbers."""

    def __init__(self, o: Operation, numbers: Sequence[int], memory: Memory) -> None:
        self.bytes = {space: np.zeros(len(m), bool) for space, m in memory.spaces.items()}
        self.registers: set[int] = set()
        for n in numbers:
            a = o.arguments[n] if n < len(o.arguments) else None
            if type(a) is Place:
                shape, strides = (*a.shape, a.dtype.itemsize), (*a.strides, 1)
                np.ndarray(shape, bool, self.bytes[a.space], a.offset, strides)[...] = True
            elif isinstance(a, RegisterNumber):
                self.registers.add(int(a))


@dataclass
class Sample:
    """An operation and the memory that it finds."""

    operation: Operation
    memory: Memory


def faults(sample: Sample, function: Function | None = None) -> Iterator[str]:
    """Where the operation doesn't do as declared.

    Args:
        function: with another declaration, in place of the operation's own.
    """
    o = sample.operation
    f = function or o.function
    constants = pickle.dumps([a for a in o.arguments if type(a) is not Place])
    read, written = (Touched(o, numbers, sample.memory) for numbers in (f.reads, f.writes))
    for before in _contents(sample, read):
        after = before.copy()
        try:
            after.run(o)
        except NkiError as error:
            if not f.raises:
                yield f"raises {error!r}"
            continue
        except Exception as error:
            if before is sample.memory:
                raise
            yield f"isn't prepared for {type(error).__name__}: {error}"
            continue
        yield from _kept(before, after, written)
        if len(after.printed) > len(before.printed) and not f.ordered:
            yield "is seen outside"
        fills = (*BYTES, None) if before is sample.memory else (None,)
        for other in _unread_changed(before, read, fills):
            result = other.copy()
            try:
                result.run(o)
            except Exception as error:
                yield f"something that isn't read makes it raise {error!r}"
                continue
            yield from _kept(other, result, written)
            yield from _same((before, after), (other, result), written)
    if pickle.dumps([a for a in o.arguments if type(a) is not Place]) != constants:
        yield "changes a constant"


def _contents(sample: Sample, read: Touched) -> Iterator[Memory]:
    """The memory that it finds, and others: arguments of other values."""
    yield sample.memory
    rng = np.random.default_rng(len(sample.operation.function.name))
    for places in _read(sample.operation):
        for values in range(4):
            changed = sample.memory.copy()
            for p in places:
                _refill(changed.array(p), values, rng)
            yield changed
    if read.registers:
        for value in (0, 1, -3, 100, 2**31 - 1):
            changed = sample.memory.copy()
            for register in read.registers:
                changed.registers[register] = value
            yield changed


def _read(o: Operation) -> Iterator[list[Place]]:
    """Arguments of which other values are tried, together and one by one."""
    places = [o.arguments[n] for n in o.function.reads if n < len(o.arguments)]
    places = [p for p in places if type(p) is Place]
    if places:
        yield places
    if len(places) > 1:
        yield from ([p] for p in places)


def _refill(array: np.ndarray, values: int, rng: np.random.Generator) -> None:
    """Small numbers, all bits, numbers that are there in another order, or zeros and poison."""
    if values == 0:
        array[...] = rng.integers(0, 5, array.shape).astype(array.dtype)
    elif values == 1:
        bits = rng.integers(0, 256, (*array.shape, array.itemsize), np.uint8)
        array[...] = (bits & 1).view(bool)[..., 0] if array.dtype == bool else _typed(bits, array)
    elif values == 2:
        array[...] = rng.permutation(array.reshape(-1)).reshape(array.shape)
    else:
        poison = np.nan if array.dtype.kind not in "biu" else 1
        array[...] = np.where(rng.integers(0, 2, array.shape), 0, poison).astype(array.dtype)


def _typed(bits: np.ndarray, array: np.ndarray) -> np.ndarray:
    return bits.view(array.dtype).reshape(array.shape)


def _kept(before: Memory, after: Memory, written: Touched) -> Iterator[str]:
    for space, now in after.spaces.items():
        if bool(((now != before.spaces[space]) & ~written.bytes[space]).any()):
            yield f"changes bytes of {space} that aren't declared written"
    for n, (was, now) in enumerate(zip(before.registers, after.registers, strict=True)):
        if was != now and n not in written.registers:
            yield f"changes register {n}, which isn't declared written"


def _unread_changed(before: Memory, read: Touched, fills: Sequence[int | None]) -> Iterator[Memory]:
    """All that isn't declared read holds something else: a byte, or random ones."""
    rng = np.random.default_rng(5)
    for more, byte in enumerate(fills, 1):
        other = before.copy()
        for space, memory in other.spaces.items():
            fill = rng.integers(0, 256, len(memory), np.uint8) if byte is None else np.uint8(byte)
            if space[0] == "mask":
                fill = fill & 1
            memory[...] = np.where(read.bytes[space], memory, fill)
        for n in range(len(other.registers)):
            if n not in read.registers:
                other.registers[n] += more
        yield other


def _same(
    one: tuple[Memory, Memory], two: tuple[Memory, Memory], written: Touched
) -> Iterator[str]:
    """Results are the same."""
    (before, after), (other, result) = one, two
    for space, marks in written.bytes.items():
        if bool(((after.spaces[space] != result.spaces[space]) & marks).any()):
            yield f"bytes written in {space} depend on what isn't declared read, or are left"
    for n in written.registers:
        if after.registers[n] != result.registers[n]:
            yield f"register {n} depends on what isn't declared read"
    if after.printed[len(before.printed) :] != result.printed[len(other.printed) :]:
        yield "what is seen outside depends on what isn't declared read"


def without(f: Function, item: str, number: int = -1) -> Function:
    """The same function with one thing fewer declared: a number of "reads" or "writes", or a flag.

    It isn't in the list of functions.
    """
    other = object.__new__(Function)
    for name in Function.__slots__:
        setattr(other, name, getattr(f, name))
    if item in ("reads", "writes"):
        setattr(other, item, tuple(n for n in getattr(f, item) if n != number))
    else:
        setattr(other, item, False)
    return other


def declared(f: Function) -> list[tuple[str, int]]:
    """All that a function declares, for `without`."""
    found = [("reads", n) for n in f.reads] + [("writes", n) for n in f.writes]
    return found + [(flag, -1) for flag in ("raises", "ordered") if getattr(f, flag)]
