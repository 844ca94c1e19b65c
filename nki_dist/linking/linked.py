"""A linked program: what a core does, as data that knows no array, no core and no process.

It can be printed, compared, sent to another process, and bound to the memory of any core; see
`runtime.binding`.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.isa.core import Ordering
from nki_dist.linking.kinds import Kind, Run, equal_key
from nki_dist.linking.panels import Panel
from nki_dist.ops.place import Space
from nki_dist.program import Instruction, Loop, Program, instructions, loops


@dataclass
class Segment:
    """Instructions that run one after the other without waiting for anybody.

    Attributes:
        steps: what each does: in a linked program the number of a run, in a placed one that of a
            step, bound to a core a function; of one that is settled at run time what settles it.
        instructions: as many; a storage's birth has the instruction that touches it first.
        moves: they are known to do no more than move bits, so NumPy has nothing to warn of.
        births: places of births.
    """

    steps: list[Any]
    instructions: list[Instruction]
    moves: bool = False
    births: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Late:
    """An instruction with a run-time address: what it does is settled when its turn comes."""

    instruction: Instruction


@dataclass
class LinkedExchange:
    """An instruction that may wait for other cores; `start`, once it is bound, begins it."""

    instruction: Instruction
    orders: Ordering
    start: Any = None


@dataclass
class LinkedLoop:
    """A loop whose rounds are counted at run time."""

    loop: Loop
    body: list[Any]


Block: TypeAlias = "list[Segment | LinkedExchange | LinkedLoop]"


@dataclass(eq=False)
class Linked:
    """See the module's docstring.

    Two are equal if they do the same for the same program. Pickled, the program is as in a file.

    Attributes:
        program: that was linked.
        kinds: by number.
        runs: by number; equal ones have one number.
        body: in program order.
        spaces: bytes of those that aren't storages of the program.
        panels: of the operands of its products.
        masked: PSUM storages of which is recorded what the next matmul finds in their elements.
    """

    program: Program
    kinds: list[Kind]
    runs: list[Run]
    body: Block
    spaces: dict[Space, int]
    panels: list[Panel]
    masked: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Linked) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[Any, ...]:
        operations = [
            [(o.function.name, *map(equal_key, o.arguments)) for o in kind.operations]
            for kind in self.kinds
        ]
        panels = [(p.number, p.shape, p.start, p.end) for p in self.panels]
        body = list(map(_comparable, self.body))
        return self._program(), operations, self.runs, body, self.spaces, panels, self.masked

    def __reduce__(self) -> Any:
        rest = io.BytesIO()
        parts = self.kinds, self.runs, self.body, self.spaces, self.panels, self.masked
        _Pickler(rest, self.program).dump(parts)
        return _unpickled, (self._program(), rest.getvalue())

    def _program(self) -> bytes:
        """As in a file, without what the kernel returns: that may be another program's."""
        return encode(replace(self.program, outputs=None))


def _comparable(item: Any) -> Any:
    if isinstance(item, LinkedLoop):
        return list(map(_comparable, item.body))
    if isinstance(item, LinkedExchange):
        return item.instruction.ordinal, item.orders
    runs = [run if isinstance(run, int) else "late" for run in item.steps]
    return runs, [i.ordinal for i in item.instructions], item.births


class _Pickler(pickle.Pickler):
    """Parts of a program that is sent by itself, by number."""

    def __init__(self, file: Any, program: Program) -> None:
        super().__init__(file)
        self._loops = {id(loop): n for n, loop in enumerate(loops(program.body))}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is Instruction:
            return "instruction", obj.ordinal
        return ("loop", self._loops[id(obj)]) if type(obj) is Loop else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, program: Program) -> None:
        super().__init__(file)
        self._parts: dict[Any, Any] = {("loop", n): x for n, x in enumerate(loops(program.body))}
        self._parts |= {("instruction", i.ordinal): i for i in instructions(program.body)}

    def persistent_load(self, pid: Any) -> Any:
        return self._parts[pid]


def _unpickled(program: bytes, rest: bytes) -> Linked:
    decoded = decode(program, verify=False)
    return Linked(decoded, *_Unpickler(io.BytesIO(rest), decoded).load())
