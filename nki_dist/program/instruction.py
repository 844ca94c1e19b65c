"""Instructions, structured loops and the program that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from nki_dist.dtypes import DType
from nki_dist.dtypes.poison import poison_bits
from nki_dist.program.access import Access
from nki_dist.program.register import VirtualRegister
from nki_dist.program.storage import Storage


@dataclass(slots=True, eq=False, repr=False)
class Instruction:
    """One operation on one engine.

    Attributes:
        opcode: name of the file in `nki_dist.isa` that defines it.
        args: operand and attribute values by parameter name; tensors are Access objects.
        engine: name of the engine that executes it ("tensor", "vector", ..., "dma").
        location: number in the program's table of source locations.
        ordinal: position in program order.
        after: ordinals of instructions it must follow (`depends_on`).
        order_group: number of the `nl.no_reorder` region it is in, or 0.
        accumulation: what a matmul does with what its destination holds, as the compiler found:
            "replace", "add" or "runtime" (decided when it runs); "" for other instructions.
        kind: one object for instructions that differ only in where their operands lie, or None
            where nobody has looked: the same opcode, engine and attributes, and tensors, none of
            them in lists or with a run-time part, of the same shapes, strides and dtypes, in
            storages of the same memory, shape and dtype.
    """

    opcode: str
    args: dict[str, Any]
    engine: str
    location: int
    ordinal: int
    after: tuple[int, ...] = field(default=(), init=False)
    order_group: int = field(default=0, init=False)
    accumulation: str = field(default="", init=False)
    kind: Any = field(default=None, init=False)

    def change(self, args: dict[str, Any]) -> None:
        """Give it other arguments; what was known of its kind no longer holds."""
        self.args = args
        self.kind = None

    def with_args(self, args: dict[str, Any]) -> Instruction:
        """The same instruction with other arguments."""
        result = Instruction(self.opcode, args, self.engine, self.location, self.ordinal)
        result.after, result.order_group = self.after, self.order_group
        result.accumulation = self.accumulation
        return result

    def with_tensors(self, change: Callable[[Access], Access]) -> Instruction:
        """The same instruction on what `change` makes of its tensors."""
        return self.with_args({name: _changed(a, change) for name, a in self.args.items()})

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def __repr__(self) -> str:
        return f"<{self.ordinal}: {self.opcode} on {self.engine}>"


def _changed(value: Any, change: Callable[[Access], Access]) -> Any:
    # No function inside another that calls itself: who has linked code would be in a cycle.
    if isinstance(value, Access):
        return change(value)
    if type(value) is list or type(value) is tuple:
        return type(value)(_changed(inner, change) for inner in value)
    return value


@dataclass(slots=True, eq=False)
class Loop:
    """A loop that stays a loop: its trip count is known only at run time.

    kind "for": `register` takes start, start+step, ... below stop (ints or registers).
    kind "while": the body repeats while `condition` is nonzero, tested before each iteration;
    `register` (if any) receives the condition's value at the start of each iteration.
    Storages numbered below `outside` were allocated before the loop and live across iterations;
    the others are new in every iteration.
    """

    kind: str
    location: int
    register: VirtualRegister | None = None
    start: Any = 0
    stop: Any = 0
    step: int = 1
    condition: VirtualRegister | None = None
    outside: int = 0
    body: Block = field(default_factory=list, init=False)

    @property
    def rounds(self) -> int | None:
        """How often it runs, None where bounds are in registers; a `while` may not run at all."""
        if self.kind == "for" and isinstance(self.start, int) and isinstance(self.stop, int):
            return max(0, -(-(self.stop - self.start) // self.step))
        return None

    def with_body(self, body: Block) -> Loop:
        """The same loop around other items."""
        result = copy(self)
        result.body = body
        return result


Block: TypeAlias = "list[Instruction | Loop]"


def instructions(block: Block) -> Iterator[Instruction]:
    """Every instruction of a block in program order, loop bodies once."""
    for item in block:
        if isinstance(item, Loop):
            yield from instructions(item.body)
        else:
            yield item


def loops(block: Block) -> Iterator[Loop]:
    """Every loop of a block, from outside in."""
    for item in block:
        if isinstance(item, Loop):
            yield item
            yield from loops(item.body)


def rewritten(block: Block, change: Callable[[Instruction], Instruction | None]) -> Block:
    """A block of what `change` makes of its instructions, without those it makes nothing of."""
    items = (
        item.with_body(rewritten(item.body, change)) if isinstance(item, Loop) else change(item)
        for item in block
    )
    return [item for item in items if item is not None]


BETA1: Final = "beta1"  # the fact that a program is of a kernel of Beta 1

# The fact which copies of a static_range's body instructions belong to: (ordinal, number) of each
# place where another copy begins; number 0 is outside of such loops. A compiler sees each copy as
# code of its own, whereas rounds of other loops are the same code.
UNROLLED: Final = "unrolled"


@dataclass
class Program:
    """The instruction stream of one core.

    Attributes:
        kernel: the kernel's name.
        platform: "trn1", "trn2" or "trn3".
        core: the physical core of the launch grid it is for.
        cores: physical cores in the grid.
        storages: every storage; accesses refer to them by position.
        body: instructions and loops.
        registers: how many registers it uses.
        locations: (file, line, function) table.
        outputs: the tree the kernel returns, with Access leaves (see launcher).
        facts: what the passes found out (peak memory, flagged reads, ...), plain data.
        noted: what tells the warnings among the facts apart (see compiler.notes); isn't saved.
    """

    kernel: str
    platform: str
    core: int
    cores: int
    storages: list[Storage] = field(default_factory=list)
    body: Block = field(default_factory=list)
    registers: int = 0
    locations: list[tuple[str, int, str]] = field(default_factory=list)
    outputs: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    noted: set[str] = field(default_factory=set, repr=False, compare=False)

    def where(self, location: int) -> str | None:
        """`file:line` of a location number."""
        if 0 <= location < len(self.locations):
            file, line, _ = self.locations[location]
            return f"{file}:{line}"
        return None

    def at(self, what: Instruction | Storage) -> dict[str, Any]:
        """Where an instruction is, or an allocation, as errors are told."""
        called = f"nisa.{what.opcode}" if isinstance(what, Instruction) else "nl.ndarray"
        return {"location": self.where(what.location), "core": self.core, "instruction": called}

    def unwritten(self, dtype: DType) -> int:
        """The bits that an element has before anything writes it: poison, or with the fact
        `zeroed` (`Checks(unwritten="zero")`) none."""
        return 0 if "zeroed" in self.facts else poison_bits(dtype)

    @property
    def beta1(self) -> bool:
        """Whether it's of a kernel of Beta 1, whose order and places AWS's compiler chooses."""
        return BETA1 in self.facts

    def shared(self) -> list[Storage]:
        """What all cores allocate alike, by index: shared tensors and constants."""
        found = [s for s in self.storages if s.role in ("shared", "constant")]
        return sorted(found, key=lambda s: s.index)

    def __len__(self) -> int:
        return sum(1 for _ in instructions(self.body))
