"""Writes programs as bytes, for files and other processes.

What repeats is written once, in tables: texts, kinds of storages, access patterns, accesses, and
instruction forms (opcode, engine and every argument that isn't a tensor or register). What is left
of an instruction is a few small integers: its form, its location and the numbers of its operands.
All of it follows from the instructions' declarations; no opcode is known here.

Invariant: equal programs give equal bytes, and `encode(decode(b)) == b`.

Not written down: which Python objects were the same object.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, Final

import msgpack

from nki_dist.compiler.values import write_value
from nki_dist.compiler.wire import PROGRAM, pack, unwritable
from nki_dist.dtypes import DType
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Block, Instruction, Loop, Program, Storage, VirtualRegister

FIELDS: Final = (
    "kernel", "platform", "core", "cores", "registers", "kinds", "storages", "indices",
    "addresses", "data", "patterns", "accesses", "dynamics", "forms", "code", "loops", "after",
    "groups", "locations", "outputs", "facts", "texts",
)  # fmt: skip
LOOP_BEGIN: Final = -1
LOOP_END: Final = -2
PLACED: Final = 1
WRITTEN: Final = 2
CALLED: Final = 4  # the name isn't the kernel's, but what its source calls the storage


@cache
def parameters(opcode: str) -> tuple[str, ...]:
    """Names of the arguments that an instruction's `args` hold, in the order of its signature."""
    spec = INSTRUCTIONS[opcode]
    dropped = {"name", "engine"} if spec.has_engine else {"name"}
    return tuple(n for n in spec.signature.parameters if n not in dropped)


def encode(program: Program) -> bytes:
    """The program as bytes that `decode` reads without running code.

    Raises:
        ProgramFormatError: the program holds something that can't be written down, refers to a
            storage that isn't its own, or its ordinals aren't the program order.
    """
    return pack(PROGRAM, _Encoder(program).body())


class _Table(list[Any]):
    """Rows with numbers, first come first served."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any, row: Callable[[], Any] | None = None) -> int:
        """The number of a key, which is its own row if nothing else gives one."""
        n = self._numbers.get(key)
        if n is None:
            n = self._numbers[key] = len(self)
            self.append(key if row is None else row())
        return n


class _Encoder:
    """Attributes are called as the fields they become; other fields are the program's."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.texts, self.kinds, self.patterns, self.forms, self.rows = (_Table() for _ in range(5))
        self.loops: list[Any] = []
        self.code: list[int] = []
        self.after: list[list[int]] = []
        self.groups: list[int] = []
        # The program keeps every access alive while it is encoded, so ids aren't reused.
        self._access_ids: dict[int, int] = {}
        self._ordinal = 0

    def body(self) -> dict[str, Any]:
        p = self.program
        self._block(p.body)
        derived = {
            "outputs": write_value(p.outputs, self.access, int),
            "facts": write_value(p.facts, self.access, int),
            "storages": [part for s in p.storages for part in self._storage(s)],
            "indices": [x for s in p.storages if s.index != -1 for x in (s.number, s.index)],
            "addresses": [
                x for s in p.storages if s.address is not None for x in (s.number, *s.address)
            ],
            "data": [[s.number, s.data] for s in p.storages if s.data is not None],
            "accesses": [[row[column] for row in self.rows] for column in range(3)],
            "dynamics": [[n, *row[3]] for n, row in enumerate(self.rows) if row[3] is not None],
            "locations": [
                part
                for file, line, function in p.locations
                for part in (self.texts.number(file), int(line), self.texts.number(function))
            ],
        }
        found = {**vars(p), **vars(self), **derived}
        return {field: found[field] for field in FIELDS}

    # ---- storages and accesses --------------------------------------------------------------

    def _storage(self, s: Storage) -> tuple[int, ...]:
        row = [s.region.value, [int(n) for n in s.shape], s.dtype.name, s.role]
        key = (row[0], s.shape, row[2], s.role)
        called = bool(s.called) and not s.name
        flags = PLACED * s.placed | WRITTEN * s.written | CALLED * called
        location = -1 if s.location is None else s.location
        kind = self.kinds.number(key, lambda: row)
        return kind, self.texts.number(s.name or s.called), s.first, s.last, location, flags

    def access(self, a: Access) -> int:
        """Number of an access; equal accesses share one."""
        n = self._access_ids.get(id(a))
        if n is None:
            n = self._access_ids[id(a)] = self._new_access(a)
        return n

    def _new_access(self, a: Access) -> int:
        number, storages = a.storage.number, self.program.storages
        if not 0 <= number < len(storages) or storages[number] is not a.storage:
            unwritable(
                f"{a.storage.label} isn't among the storages of the program of "
                f"{self.program.kernel}"
            )
        shape, strides, dtype = a.shape, a.strides, a.dtype.name
        pattern = self.patterns.number(
            (shape, strides, dtype),
            lambda: [dtype, [int(n) for n in shape], [int(n) for n in strides]],
        )
        moving = None if a.dynamic is None else self._moving(a.dynamic)
        return self.rows.number((number, int(a.offset), pattern, moving))

    def _moving(self, dynamic: Any) -> tuple[Any, ...]:
        source = dynamic.source
        # Registers are negative numbers, so one integer tells both kinds of source apart.
        at = ~source.number if isinstance(source, VirtualRegister) else self.access(source)
        places = (*(dynamic.within or dynamic.extent or ()), *((1,) if dynamic.extent else ()))
        return dynamic.kind, at, *map(int, (dynamic.stride, dynamic.limit, dynamic.dim, *places))

    # ---- instructions -----------------------------------------------------------------------

    def _block(self, block: Block) -> None:
        for item in block:
            if isinstance(item, Loop):
                self.code += (LOOP_BEGIN, len(self.loops))
                self.loops.append(_loop(item))
                self._block(item.body)
                self.code.append(LOOP_END)
            else:
                self._instruction(item)

    def _instruction(self, i: Instruction) -> None:
        if i.ordinal != self._ordinal:
            unwritable(
                f"{i!r} is number {self._ordinal} in program order; ordinals must count from 0"
            )
        self._ordinal += 1
        if i.opcode not in INSTRUCTIONS:
            unwritable(f"{i!r}: there is no instruction {i.opcode!r}")
        names, args = parameters(i.opcode), i.args
        if tuple(args) != names and set(args) != set(names):
            unwritable(f"{i!r} has arguments {', '.join(args)}; allowed: {', '.join(names)}")
        operands: list[int] = []
        key: list[Any] = [i.opcode, i.engine, i.accumulation]
        for name in names:
            key.append(self._key(args[name], operands))
        form = self.forms.number(tuple(key), lambda: self._form(i, names))
        self.code += (form, i.location, *operands)
        if i.after:
            self.after.append([i.ordinal, *i.after])
        if i.order_group:
            self.groups += (i.ordinal, i.order_group)

    def _key(self, value: Any, operands: list[int]) -> Any:
        """What tells this argument's part of a form apart; operands go to the list."""
        kind = type(value)
        if isinstance(value, Access):
            operands.append(self.access(value))
            return Access
        if kind is str or value is None:
            return value
        if isinstance(value, (Enum, DType)):
            return id(value)  # they are constants; their own hash takes ten times longer
        if kind is int or kind is bool:
            return kind, value
        if kind is float:
            return kind, struct.pack("<d", value)  # tells -0.0 from 0.0
        return msgpack.packb(
            write_value(value, lambda a: operands.append(self.access(a)), operands.append)
        )

    def _form(self, i: Instruction, names: tuple[str, ...]) -> list[Any]:
        values = [write_value(i.args[name], _hole, _hole) for name in names]
        decided = [i.accumulation] if INSTRUCTIONS[i.opcode].accumulates else []
        return [i.opcode, i.engine, *values, *decided]


def _hole(_: Any) -> None:
    """In a form, the place of an operand that each instruction fills itself."""


def _loop(loop: Loop) -> list[Any]:
    start, stop = (write_value(b, _hole, int) for b in (loop.start, loop.stop))
    register, condition = (None if r is None else r.number for r in (loop.register, loop.condition))
    return [
        loop.kind, loop.location, register, start, stop, int(loop.step), condition, loop.outside
    ]  # fmt: skip
