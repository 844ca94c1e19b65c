"""Kinds: what instructions have in common that differ only in where their operands lie.

A kind is the operations of an instruction relative to where its operands begin. So a program of a
hundred thousand instructions has some dozens of kinds, and for each instruction a kind and bases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nki_dist.linking.facts import Facts
from nki_dist.linking.indirect import lowered
from nki_dist.linking.lowering import Lowering
from nki_dist.ops.operation import Operation
from nki_dist.ops.place import Place, Space
from nki_dist.program import Access, Instruction

_new = tuple.__new__  # an instruction has several, and a program hundreds of thousands

Base: TypeAlias = "tuple[Space, int]"
"""Where an operand of a kind begins: a space, and bytes from its start."""

_MOVED = frozenset({"storage", "panel", "mask"})  # spaces of which many are alike


class Kind(NamedTuple):
    """Operations relative to their operands.

    Attributes:
        operations: their places are in ("operand", n), or in spaces that are the same for all.
        scratch: bytes that they need besides.
    """

    operations: tuple[Operation, ...]
    scratch: int


class Run(NamedTuple):
    """A kind, and where its operands begin.

    Attributes:
        kind: number of the kind in its program.
        bases: of its operands, by number.
    """

    kind: int
    bases: tuple[Base, ...]


class _Sources(NamedTuple):
    """Where the bases of a kind come from: for each, which operand, the size of its elements, and
    bytes from its start."""

    kind: int
    sources: tuple[tuple[int, int, int], ...]


class Kinds:
    """The kinds of a program, found as its instructions are lowered.

    Args:
        kit: that lowers them.
        masked: see `indirect.lowered`.

    Attributes:
        kinds: by number.
    """

    def __init__(self, kit: Lowering, masked: Collection[int] = ()) -> None:
        self._kit, self._masked = kit, masked
        self.kinds: list[Kind] = []
        self._numbers: dict[Any, int] = {}
        self._cache: dict[Any, _Sources | None] = {}

    def of(self, i: Instruction, facts: Facts) -> Run:
        """The run of an instruction whose run-time offsets are known."""
        names = facts.operands
        if i.kind is None or names is None:
            return self._lowered(i)
        args = i.args
        operands = [args[name] for name in names]
        numbers = [a.storage.number for a in operands]
        apart = len(set(numbers)) == len(numbers)
        key: tuple[Any, ...] = id(i.kind), i.accumulation, None if apart else _together(operands)
        cached = self._cache.get(key)
        if cached is None:
            if key not in self._cache:
                return self._learnt(i, operands, key)
            # Not only on where its operands lie relative to each other.
            key = *key, tuple([a.start_partition for a in operands])
            cached = self._cache.get(key)
            if cached is None:
                return self._learnt(i, operands, key)
        kind, sources = cached
        bases = [
            (("storage", numbers[n]), operands[n].offset * size + ahead)
            for n, size, ahead in sources
        ]
        return _new(Run, (kind, tuple(bases)))

    def run_of(self, operations: Sequence[Operation], scratch: int) -> Run:
        """The run that these operations are."""
        spaces: dict[Space, int] = {}
        bases: list[Base] = []
        relative = []
        for o in operations:
            arguments = []
            for a in o.arguments:
                if type(a) is Place and a.space[0] in _MOVED:
                    number = spaces.get(a.space)
                    if number is None:
                        number = spaces[a.space] = len(bases)
                        bases.append((a.space, a.offset))
                    a = a.moved(("operand", number), -bases[number][1])
                arguments.append(a)
            relative.append(Operation(o.function, tuple(arguments)))
        kind = Kind(tuple(relative), scratch)
        key = tuple([(o.function.name, *map(equal_key, o.arguments)) for o in relative])
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.kinds)
            self.kinds.append(kind)
        return Run(found, tuple(bases))

    def _lowered(self, i: Instruction) -> Run:
        kit = self._kit
        kit.begin()
        operations = lowered(i, kit, self._masked)
        return self.run_of(operations, kit.used)

    def _learnt(self, i: Instruction, operands: Sequence[Access], key: Any) -> Run:
        run = self._lowered(i)
        if self._kit.named or self._masked:
            return run
        if len(key) == 3 and _looks_at_state(self.kinds[run.kind].operations):
            self._cache[key] = None
            key = *key, tuple([a.start_partition for a in operands])
        first: dict[Space, int] = {}
        for n, a in enumerate(operands):
            first.setdefault(("storage", a.storage.number), n)
        sources = []
        for space, offset in run.bases:
            n = first[space]
            size = operands[n].dtype.itemsize
            sources.append((n, size, offset - operands[n].offset * size))
        self._cache[key] = _Sources(run.kind, tuple(sources))
        return run


def _together(operands: Iterable[Access]) -> tuple[Any, ...]:
    """Which operands share a storage, and how far apart they begin."""
    first: dict[int, tuple[int, int]] = {}
    found = []
    for n, a in enumerate(operands):
        at = a.offset * a.dtype.itemsize
        number, start = first.setdefault(a.storage.number, (n, at))
        found.append((number, at - start))
    return tuple(found)


def _looks_at_state(operations: Iterable[Operation]) -> bool:
    """Whether some place is in what a core keeps, which follows partitions, not addresses."""
    places = (a for o in operations for a in o.arguments if type(a) is Place)
    return any(a.space[0] in ("accumulators", "random") for a in places)


def equal_key(argument: Any) -> Any:
    """Equal for equal arguments."""
    if type(argument) is np.ndarray:
        return argument.dtype.str, argument.shape, argument.tobytes()
    if isinstance(argument, np.generic):
        return argument.dtype.str, argument.tobytes()
    if isinstance(argument, float):
        return "float", argument.hex()  # zeros have a sign
    if type(argument) is tuple:
        return tuple(map(equal_key, argument))
    try:
        hash(argument)
    except TypeError:
        return id(argument)
    return type(argument), argument


def equal_arguments(i: Instruction) -> Any:
    """Equal for instructions of one kind that have the same arguments."""
    return i.opcode, tuple([(name, _equal(value)) for name, value in i.args.items()])


def _equal(value: Any) -> Any:
    """Equal for equal arguments; of what isn't known to be plain, only to itself."""
    if isinstance(value, (list, tuple)):
        return tuple([_equal(v) for v in value])
    if isinstance(value, Access) and value.dynamic is None:
        return (value.storage.number, value.offset, value.shape, value.strides, id(value.dtype))
    if value is None or isinstance(value, (int, str)):
        return type(value), value
    return id(value)
