"""Says which instructions a core executed, and which had to come before which: its order graph.

A program and the trip counts of its dynamic loops say exactly which instructions were executed.
Between them there are three kinds of edges, the ones a compiler would turn into semaphores:

    data    read after write, `depends_on`, registers, loop conditions: needs the result;
    reuse   write after read or write: needs the earlier access to be over;
    issue   `nl.no_reorder` and instructions that talk to other cores: only needs it to have begun.

Engine queues aren't edges: on the device they follow from the order chosen, they don't limit it.

Invariant: executing along any topological order of the graph gives the results of program order.
Doesn't model the addresses of tensors that the kernel didn't place (unless asked), nor registers
spilled per engine. Follows: A2 "Engine synchronisation"; ISA `depends_on`, `nl.no_reorder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from nki_dist.errors import LaunchError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import Tensor
from nki_dist.isa.spec import Spec
from nki_dist.program import (
    Access,
    Block,
    Instruction,
    Loop,
    Program,
    VirtualRegister,
    instructions,
)
from nki_dist.timing.cells import Cell, Cells, note_read, note_write
from nki_dist.timing.footprint import footprint, moving_registers, territories
from nki_dist.timing.registers import copied, registers_read, registers_written

AccessPair: TypeAlias = "tuple[list[Access], list[Access]]"


@dataclass
class OrderGraph:
    """Executed instructions of one core, by position, and the edges into each.

    Attributes:
        program: what was executed.
        executed: the instruction at each position, in program order.
        data, reuse, issue: positions each one must follow; see the module's docstring.
        tensors: by ordinal, the accesses that read and that write.
        rounds: for each position, how many rounds of dynamic loops began or ended before it.
    """

    program: Program
    executed: list[Instruction] = field(default_factory=list)
    data: list[tuple[int, ...]] = field(default_factory=list)
    reuse: list[tuple[int, ...]] = field(default_factory=list)
    issue: list[tuple[int, ...]] = field(default_factory=list)
    tensors: dict[int, AccessPair] = field(default_factory=dict)
    rounds: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.executed)

    def line(self, location: int) -> str:
        """The kernel line of a location, "?" if there is none."""
        return self.program.where(location) or "?"

    def before(self, position: int) -> Iterator[int]:
        """Every position with an edge to this one."""
        yield from self.data[position]
        yield from self.reuse[position]
        yield from self.issue[position]

    def ancestors(self, positions: Iterable[int]) -> set[int]:
        """Positions up to two edges back."""
        found: set[int] = set()
        for p in positions:
            if p < len(self.data):
                found.update(self.data[p])
                found.update(self.reuse[p])
        return found


def times_written(graph: OrderGraph) -> Counter[int]:
    """How often each storage is written, by its number."""
    return Counter(a.storage.number for i in graph.executed for a in graph.tensors[i.ordinal][1])


def order(program: Program, trips: Sequence[int] = ()) -> OrderGraph:
    """The order graph of one core.

    Args:
        trips: how often each dynamic loop went round, in the order loops were entered.

    Raises:
        LaunchError: `trips` doesn't belong to this program.
    """
    builder = _Builder(program, trips)
    builder.block(program.body)
    for cells in builder.cells.values():
        cells.part()
    if builder.entered != len(trips):
        raise LaunchError(
            f"kernel {program.kernel}: {len(trips)} trip counts were recorded, the program enters "
            f"{builder.entered} dynamic loops",
            code="profile-trips",
            numbers={"got": len(trips), "allowed": builder.entered},
        )
    return builder.graph


class _Registers(NamedTuple):
    """What an instruction does with registers, in every execution; see `registers`."""

    read: Collection[int]  # for addresses, too
    written: Sequence[int]
    copied: Any


def _in_order(positions: Sequence[int]) -> tuple[int, ...]:
    """Each once, sorted, so that nothing later depends on the iteration order of sets."""
    return tuple(sorted({*positions})) if len(positions) > 1 else tuple(positions)


def _alone(reuse: list[int], data: list[int], at: int) -> tuple[int, ...]:
    """Those of `reuse` that aren't in `data` as well, nor `at` itself."""
    if len(reuse) == 1:  # as most are: faster than sets
        return () if reuse[0] == at or reuse[0] in data else (reuse[0],)
    return _in_order([*{*reuse}.difference(data, (at,))])


def _tensors(i: Instruction, spec: Spec) -> AccessPair:
    """Accesses read and written; what a synchronising instruction only orders counts as written."""
    reads, writes = spec.reads(i), spec.writes(i)
    if spec.synchronises:
        for name, role in spec.roles.items():
            value = i.args.get(name)
            if isinstance(role, Tensor) and not role.mode and isinstance(value, Access):
                writes.append(value)
    return reads, writes


class _Builder:
    """Walks the executed instructions of one core in program order."""

    def __init__(self, program: Program, trips: Sequence[int]) -> None:
        self.graph = OrderGraph(program)
        self.trips = trips
        self.entered = 0
        self.round = 0
        self.keys, self.territories = territories(program.storages)
        self.cells: dict[int, Cells] = {}
        self.values: dict[int, int] = {}
        self.register_writer: dict[int, int] = {}
        self.register_readers: dict[int, list[int]] = {}
        self.state_holder: dict[tuple[str, str], int] = {}
        self.control: set[int] = set()
        self.group: tuple[int, int] = (0, -1)
        self.last_exchange = -1
        self.registers: dict[int, _Registers | None] = {}  # by ordinal
        self.touched: dict[int, tuple[list[Cell], list[Cell]]] = {}
        self.last_run: dict[int, int] = {}
        self.followed: set[int] = set()
        tensors = self.graph.tensors
        # Tensors and parts of them are used again and again: cells of the accesses, by identity
        # and by what they are.
        self.places: dict[int, Cell] = {}
        self.parts: dict[Any, Cell] = {}
        written: set[int] = set()
        for i in instructions(program.body):
            if i.after:
                self.followed.update(i.after)
            tensors[i.ordinal] = pair = _tensors(i, INSTRUCTIONS[i.opcode])
            for a in pair[1]:
                written.add(self.keys[a.storage.number])
        self.written = {n for n, key in enumerate(self.keys) if key in written}

    # ---- control flow -----------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for item in block:
            if isinstance(item, Loop):
                self._loop(item)
            else:
                self._instruction(item)

    def _loop(self, loop: Loop) -> None:
        if self.entered >= len(self.trips):
            raise LaunchError(
                f"kernel {self.graph.program.kernel}: no trip count for a dynamic loop",
                location=self.graph.program.where(loop.location),
                code="profile-trips",
            )
        rounds = self.trips[self.entered]
        self.entered += 1
        register = loop.register.number if loop.register is not None else None
        tested = [r for r in (loop.start, loop.stop) if isinstance(r, VirtualRegister)]
        start = loop.start
        if isinstance(start, VirtualRegister):
            start = self.values.get(start.number)
        self._decide(tested)
        for n in range(rounds):
            self.round += 1
            if loop.kind == "while":
                self._decide([loop.condition])
            if register is not None:
                self._induction(register, loop, start, n)
            self.block(loop.body)
        if loop.kind == "while":
            self._decide([loop.condition])
        self.round += 1

    def _decide(self, registers: Sequence[VirtualRegister | None]) -> None:
        """Nothing after a test can be issued before what it tests is known."""
        writers = {
            self.register_writer[r.number]
            for r in registers
            if r is not None and r.number in self.register_writer
        }
        if writers and self.control and min(writers) > max(self.control):
            self.control = writers  # they themselves waited for the earlier tests
        else:
            self.control = self.control | writers

    def _induction(self, register: int, loop: Loop, start: Any, n: int) -> None:
        self.values.pop(register, None)
        if loop.kind == "for" and start is not None:
            self.values[register] = start + n * loop.step

    # ---- one instruction --------------------------------------------------------------------

    def _instruction(self, i: Instruction) -> None:
        graph, ancestors = self.graph, self.graph.ancestors
        at, spec = len(graph.executed), INSTRUCTIONS[i.opcode]
        data: list[int] = [*self.control]
        reuse: list[int] = []
        read, written = self.touched.get(i.ordinal) or self._touched(i)
        for cell in read:
            note_read(cell, at, data, ancestors)
        for cell in written:
            note_write(cell, at, reuse)
        if graph.program.registers:
            if i.ordinal not in self.registers:
                self.registers[i.ordinal] = self._registers_of(i, spec)
            if (registers := self.registers[i.ordinal]) is not None:
                self._registers(registers, at, data, reuse)
        if spec.effects.state is not None:
            for name in spec.effects.states(i):
                holder = self.state_holder.get(name, at)
                if holder != at:
                    data.append(holder)
                self.state_holder[name] = at
        if self.followed:
            data += [self.last_run[earlier] for earlier in i.after if earlier in self.last_run]
            if i.ordinal in self.followed:
                self.last_run[i.ordinal] = at
        graph.executed.append(i)
        graph.rounds.append(self.round)
        graph.data.append(_in_order(data))
        graph.reuse.append(_alone(reuse, data, at) if reuse else ())
        ordered = i.order_group or spec.synchronises
        graph.issue.append(self._issued_after(i, spec, at) if ordered else ())

    def _touched(self, i: Instruction) -> tuple[list[Cell], list[Cell]]:
        """What it reads of what the program writes, and what it writes."""
        places, written = self.places, self.written
        reads, writes = self.graph.tensors[i.ordinal]
        found = (
            [places.get(id(a)) or self._place(a) for a in reads if a.storage.number in written],
            [places.get(id(a)) or self._place(a) for a in writes],
        )
        if self.round and not moving_registers((*reads, *writes)):  # it is executed again
            self.touched[i.ordinal] = found
        return found

    def _place(self, a: Access) -> Cell:
        if a.dynamic is not None:
            cell = self._cell(a)
            if moving_registers([a]):  # it is elsewhere every time
                return cell
        else:
            part = a.storage.number, a.offset, a.shape, a.strides, a.dtype.itemsize
            cached = self.parts.get(part)
            cell = self.parts[part] = cached or self._cell(a)
        self.places[id(a)] = cell
        return cell

    def _cell(self, a: Access) -> Cell:
        number = a.storage.number
        key = self.keys[number]
        cells = self.cells.get(key)
        if cells is None:
            cells = self.cells[key] = Cells()
        return cells.cell(footprint(a, self.territories[number], self.values))

    def _registers_of(self, i: Instruction, spec: Spec) -> _Registers | None:
        reads, writes = self.graph.tensors[i.ordinal]
        read = registers_read(i, spec) | moving_registers((*reads, *writes))
        found = _Registers(read, registers_written(i, spec), copied(i, spec))
        return found if found.read or found.written else None

    def _registers(self, what: _Registers, at: int, data: list[int], reuse: list[int]) -> None:
        for r in what.read:
            if r in self.register_writer:
                data.append(self.register_writer[r])
            self.register_readers.setdefault(r, []).append(at)
        for r in what.written:
            reuse += self.register_readers.pop(r, ())
            if r in self.register_writer:
                reuse.append(self.register_writer[r])
            self.register_writer[r] = at
            self._evaluate(r, what.copied)

    def _evaluate(self, register: int, source: Any) -> None:
        """Follow the value of a register where it doesn't come from memory."""
        if isinstance(source, VirtualRegister):
            source = self.values.get(source.number)
        if isinstance(source, int):
            self.values[register] = source
        else:
            self.values.pop(register, None)

    def _issued_after(self, i: Instruction, spec: Spec, at: int) -> tuple[int, ...]:
        found = []
        if i.order_group:
            group, last = self.group
            if group == i.order_group:
                found.append(last)
            self.group = (i.order_group, at)
        if spec.synchronises:
            if self.last_exchange >= 0:
                found.append(self.last_exchange)
            self.last_exchange = at
        return tuple(sorted(set(found)))
