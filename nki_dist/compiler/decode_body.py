"""Reading a program's instructions and loops.

Each instruction is checked as the tracer checks it: arguments by their roles (once per form for
those that aren't operands), constraints by its own checks, and then what linking relies on: its
operands are alive when it runs, and a matmul that decides at run time has the state for it.

Invariant: what is returned can be linked; a program that no kernel could have made is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgpack

from nki_dist.compiler.decode_tables import INT64, Tables, integer, integers, numbered, sequence
from nki_dist.compiler.encode import LOOP_BEGIN, LOOP_END, parameters
from nki_dist.compiler.values import ACCESS, HOLES, LIST, read_value, write_value
from nki_dist.compiler.wire import malformed
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import Tensor
from nki_dist.program import Access, Block, Instruction, Loop, Storage, VirtualRegister
from nki_dist.program.walk import tensors

MAX_LOOP_DEPTH: Final = 64
_DECIDED: Final = MappingProxyType(  # what the accumulation pass makes of each `accumulate`
    {True: ("add",), False: ("replace",), None: ("add", "replace", "runtime")}
)


class Hole(NamedTuple):
    """The place of one argument's operands in a form.

    Attributes:
        name, role: of the argument.
        kind: ACCESS, REGISTER, or LIST for operands inside lists.
        known: keys of accesses that the role has accepted; None where it must be asked each time.
        packed: for LIST, the packed argument with places for its operands.
    """

    name: str
    role: Any
    kind: int
    accepted: set[int] | None
    packed: Any


class Form:
    """An instruction without its operands.

    Attributes:
        template: the arguments; those with operands are None.
        holes: the arguments with operands, in order.
        operands: how many operands they hold together.
        tensors: (argument, whether it is written) of the tensor operands.
        accumulation: for matmuls, what the pass has decided; else "".
    """

    def __init__(self, row: Any) -> None:
        if len(sequence(row, "an instruction form")) < 2:
            malformed("an instruction form without opcode and engine")
        self.opcode, self.engine = row[0], row[1]
        if type(self.opcode) is not str or self.opcode not in INSTRUCTIONS:
            malformed(f"there is no instruction {self.opcode!r}")
        self.spec = INSTRUCTIONS[self.opcode]
        if self.engine not in self.spec.engines:
            malformed(
                f"{self.opcode} on engine {self.engine!r}; allowed: {', '.join(self.spec.engines)}"
            )
        names = parameters(self.opcode)
        values, decided = row[2:], ""
        if self.spec.accumulates:
            values, decided = row[2:-1], row[-1]
        if len(values) != len(names):
            malformed(f"{self.opcode} with {len(values)} arguments; allowed: {', '.join(names)}")
        self.template: dict[str, Any] = {}
        self.holes: list[Hole] = []
        self.operands = 0
        for name, packed in zip(names, values, strict=True):
            self._argument(name, packed)
        if self.spec.accumulates and decided not in _DECIDED[self.template["accumulate"]]:
            malformed(
                f"{self.opcode}: accumulate is {self.template['accumulate']}, decided {decided!r}"
            )
        self.accumulation = decided
        # One object for the keys of all accesses: what instructions of this form differ in, apart
        # from places. None where some operand isn't a tensor.
        plain = all(hole.accepted is not None for hole in self.holes)
        self.kinds: dict[tuple[int, ...], Any] | None = {} if plain else None
        self.tensors = tuple(
            (h.name, "w" in h.role.mode) for h in self.holes if isinstance(h.role, Tensor)
        )

    def _argument(self, name: str, packed: Any) -> None:
        role = self.spec.roles.get(name)
        self.template[name] = None
        inside: list[Any] = []
        value = read_value(packed, inside.append, inside.append)
        if not inside:
            taken = value if role is None else role.accept(name, value)
            if role is not None and _packed(taken) != _packed(value):
                malformed(
                    f"{self.opcode}: {name} is {value!r}, which the role turns into {taken!r}"
                )
            self.template[name] = value
            return
        if any(v is not None for v in inside):
            malformed(f"the place of operand {name} of {self.opcode} holds {inside}")
        self.operands += len(inside)
        kind = packed[0] if packed[0] in HOLES else LIST
        # What a Tensor role accepts follows from memory, dtype and shape alone.
        accepted: set[int] | None = set() if kind == ACCESS and isinstance(role, Tensor) else None
        self.holes.append(Hole(name, role, kind, accepted, packed))


def _packed(value: Any) -> bytes:
    packed: bytes = msgpack.packb(write_value(value, id, int))
    return packed


class BodyReader:
    """Reads the instructions of one program whose tables have been read."""

    def __init__(self, tables: Tables, verify: bool) -> None:
        body, self.program, self.arch = tables.body, tables.program, tables.arch
        self.accesses, self.keys, self.verify = tables.accesses, tables.keys, verify
        self.access = numbered(tables.accesses, "an access")
        self.register = numbered(tables.registers, "a register")
        self.forms = [Form(row) for row in sequence(body["forms"], "the table of forms")]
        self.code = integers(body["code"], "the code")
        self.loops = sequence(body["loops"], "the table of loops")
        self.lines = len(self.program.locations)
        self.touched: list[set[Storage]] = []
        self.runtime = frozenset(self.program.facts.get("runtime_psum", ()))
        self.count = 0

    def read(self) -> list[Instruction]:
        """Fill the program's body; returns its instructions in program order."""
        code, forms = self.code, self.forms
        block: Block = self.program.body
        open_loops: list[tuple[Loop, Block, int]] = []
        found: list[Instruction] = []
        loops = at = 0
        while at < len(code):
            number = code[at]
            if 0 <= number < len(forms):
                form = forms[number]
                end = at + 2 + form.operands
                if end > len(code):
                    malformed("the code ends inside an instruction")
                found.append(self._instruction(form, code[at + 1], code[at + 2 : end]))
                block.append(found[-1])
                at = end
            elif number == LOOP_BEGIN and at + 1 < len(code) and code[at + 1] == loops:
                if len(open_loops) >= MAX_LOOP_DEPTH:
                    malformed(f"more than {MAX_LOOP_DEPTH} loops inside each other")
                loop = self._loop(loops)
                block.append(loop)
                open_loops.append((loop, block, self.count))
                self.touched.append(set())
                block = loop.body
                loops, at = loops + 1, at + 2
            elif number == LOOP_END and open_loops:
                loop, block, first = open_loops.pop()
                self._close(loop, first)
                at += 1
            else:
                malformed(f"{number} where an instruction should begin")
        if open_loops or loops != len(self.loops):
            malformed("a loop without end, or one that isn't used")
        return found

    # ---- loops ------------------------------------------------------------------------------

    def _loop(self, number: int) -> Loop:
        if number >= len(self.loops):
            malformed(f"loop {number}; there are {len(self.loops)}")
        row = self.loops[number]
        if type(row) is not list or len(row) != 8:
            malformed(f"the entry of loop {number}")
        kind, location, register, start, stop, step, condition, outside = row
        integer(location, -1, self.lines, "a loop's location")
        integer(outside, 0, len(self.program.storages) + 1, "a loop's outer storages")
        integer(step, 1, 1 << 32, "a loop's step")
        if kind not in ("for", "while") or (kind == "for") != (condition is None):
            malformed(f"loop {number} of kind {kind!r}")
        if kind == "for" and register is None:
            malformed(f"loop {number} counts in no register")
        given, tested = (None if r is None else self.register(r) for r in (register, condition))
        first, last = (self._bound(b) for b in (start, stop))
        if kind == "for" and given is not None:
            given.induction = True
        return Loop(kind, location, given, first, last, step, tested, outside)

    def _bound(self, packed: Any) -> Any:
        bound = read_value(packed, malformed, self.register)
        if isinstance(bound, VirtualRegister):
            return bound
        return integer(bound, -INT64, INT64, "a loop's bound")

    def _close(self, loop: Loop, first: int) -> None:
        """What a loop uses from outside is alive from before its first to after its last round."""
        touched = self.touched.pop()
        for s in touched:
            if s.number < loop.outside and (s.first > first or s.last < self.count - 1):
                malformed(f"{s.label} is used by a loop that it doesn't live through")
        if self.touched:
            self.touched[-1] |= touched

    # ---- instructions -----------------------------------------------------------------------

    def _instruction(self, form: Form, location: int, operands: list[int]) -> Instruction:
        if not -1 <= location < self.lines:
            malformed(f"location {location} of an instruction; there are {self.lines}")
        args = form.template.copy()
        accesses, keys = self.accesses, self.keys
        used = iter(operands)
        try:
            for name, role, kind, accepted, packed in form.holes:
                if kind == ACCESS:
                    number = next(used)
                    if not 0 <= number < len(accesses):
                        malformed(f"access {number}; there are {len(accesses)}")
                    value: Any = accesses[number]
                    if accepted is not None:
                        if keys[number] not in accepted:
                            role.accept(name, value)
                            accepted.add(keys[number])
                        args[name] = value
                        continue
                else:
                    value = self.register(next(used)) if kind != LIST else self._list(packed, used)
                args[name] = value if role is None else role.accept(name, value)
            i = Instruction(form.opcode, args, form.engine, location, self.count)
            i.accumulation = form.accumulation
            if form.kinds is not None and not any(accesses[n].dynamic for n in operands):
                key = tuple([keys[n] for n in operands])
                i.kind = form.kinds.setdefault(key, (form, key))
            if self.verify:
                form.spec.verify(i, self.arch)
                if form.accumulation == "runtime":
                    self._accumulates(form.spec.writes(i))
        except NkiError as error:
            malformed(
                f"instruction {self.count} ({form.opcode}) at "
                f"{self.program.where(location)}: {error.message}"
            )
        self._lifetimes(form, i)
        self.count += 1
        return i

    def _list(self, packed: Any, used: Iterator[int]) -> Any:
        return read_value(
            packed, lambda _: self.access(next(used)), lambda _: self.register(next(used))
        )

    def _accumulates(self, written: Iterable[Access]) -> None:
        for a in written:
            if a.storage.number not in self.runtime:
                malformed(f"{a.storage.label} is accumulated at run time but isn't listed")

    def _lifetimes(self, form: Form, i: Instruction) -> None:
        ordinal, runtime, touched = i.ordinal, self.runtime, self.touched
        for name, written in form.tensors:
            value = i.args[name]
            for a in (value,) if isinstance(value, Access) else tensors(value):
                s = a.storage
                if not 0 <= s.first <= ordinal <= s.last:
                    malformed(
                        f"instruction {ordinal} ({i.opcode}) uses {s.label}, which lives from "
                        f"{s.first} to {s.last}"
                    )
                if written and not s.written:
                    malformed(f"{s.label} is written, but not marked so")
                if runtime and s.number in runtime and a.dtype.itemsize < 2:
                    malformed(f"{s.label} accumulates matmuls and is accessed as {a.dtype}")
                if touched:
                    touched[-1].add(s)
                if a.dynamic is not None and isinstance(a.dynamic.source, Access):
                    self._source(a.dynamic.source.storage, ordinal)

    def _source(self, s: Storage, ordinal: int) -> None:
        if s.role == "local" and not 0 <= s.first <= ordinal <= s.last:
            malformed(f"instruction {ordinal} reads an index from {s.label} outside its life")
        if self.touched:
            self.touched[-1].add(s)
