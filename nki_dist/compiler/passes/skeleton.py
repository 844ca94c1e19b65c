"""What is left of programs when they run without arithmetic: a dry run.

A skeleton keeps every loop and every instruction that waits for other cores. Of the others it keeps
what decides how often loops go round, and where accesses with run-time addresses go: these are
carried out as ever (`real`). The rest is left out, and so is the contents of every tensor that
nothing of this reads.

Worked out backwards from the registers of loops and addresses over all cores at once, by whole
tensors: every instruction that writes a needed tensor is needed, and so is all that it reads. What
travels between cores is followed too: if one end of a `sendrecv` pipe or of a collective is needed,
every instruction that could be its other end is.

Inputs may be known by shape only. A loop that depends on their contents is an error; an address
that does isn't checked, and `unchecked` lists its line. Never checked are vectors of addresses
(gathers, scatters), except where the instruction is carried out anyway.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from nki_dist.errors import LaunchError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import (
    Access,
    Block,
    Instruction,
    Loop,
    Program,
    Storage,
    VirtualRegister,
    instructions,
    loops,
    rewritten,
)
from nki_dist.program.walk import accesses, run_time_arguments
from nki_dist.timing.footprint import moving_registers
from nki_dist.timing.registers import registers_read, registers_written

# What an instruction can depend on: a tensor, a register, an engine's state, what is on its way.
Node: TypeAlias = "tuple[Any, ...]"


@dataclass(frozen=True)
class Skeleton:
    """The skeletons of one launch's programs.

    Attributes:
        programs: one per core, reduced.
        real: for each, ordinals of the instructions that are carried out.
        contents: for each, numbers of the storages that have contents.
        unchecked: kernel lines with run-time addresses that aren't checked.
    """

    programs: list[Program]
    real: list[frozenset[int]]
    contents: list[frozenset[int]]
    unchecked: tuple[str, ...]

    @property
    def written(self) -> set[int]:
        """Indices of the arguments that some core writes."""
        every = (s for p in self.programs for s in p.storages)
        return {s.index for s in every if s.role == "input" and s.written}


@dataclass
class _Effect:
    """Reads and writes of one instruction, or of one loop if `ordinal` is None."""

    reads: set[Node]
    writes: set[Node]
    program: int
    ordinal: int | None = None
    counts_only: bool = False


@dataclass
class _Graph:
    effects: list[_Effect] = field(default_factory=list)
    writers: dict[Node, list[_Effect]] = field(default_factory=lambda: defaultdict(list))
    readers: dict[Node, list[_Effect]] = field(default_factory=lambda: defaultdict(list))

    def add(self, effect: _Effect) -> None:
        self.effects.append(effect)
        for node in effect.writes:
            self.writers[node].append(effect)
        for node in effect.reads:
            self.readers[node].append(effect)

    def before(self, nodes: Collection[Node]) -> set[Node]:
        """These nodes and everything they depend on."""
        return _closure(nodes, lambda n: (r for e in self.writers[n] for r in e.reads))

    def after(self, nodes: Collection[Node]) -> set[Node]:
        """These nodes and everything that depends on them."""
        return _closure(nodes, lambda n: (w for e in self.readers[n] for w in e.writes))


def make_skeleton(programs: Sequence[Program], unknown: Collection[int]) -> Skeleton:
    """The skeletons of a launch.

    Args:
        programs: one per core.
        unknown: indices of the inputs whose contents aren't given.

    Raises:
        LaunchError: how often a loop iterates depends on an input in `unknown`.
    """
    if all(map(_straight, programs)):
        programs = [replace(program, body=[]) for program in programs]
    graph = _Graph()
    for number, program in enumerate(programs):
        for effect in _effects(number, program.body):
            graph.add(effect)
    lost = graph.after([("input", index) for index in unknown])
    needed: set[Node] = set()
    for number, program in enumerate(programs):
        for loop in loops(program.body):
            tests = _tests(number, loop)
            if not lost.isdisjoint(tests):
                raise _undecided(graph, program, loop, tests, unknown)
            needed |= tests
    for number, program in enumerate(programs):
        for i in instructions(program.body):
            for a in run_time_arguments(i):
                needed |= {_source(number, a)} - lost
            if (counts := counts_of(i)) is not None:
                needed |= {_tensor(number, counts.storage)} - lost
    needed = graph.before(needed)
    found = Skeleton([], [], [], ())
    unchecked: list[str] = []
    for number, program in enumerate(programs):
        reducer = _Reducer(number, program, graph, needed, lost)
        found.programs.append(reducer.program())
        found.real.append(frozenset(reducer.real))
        found.contents.append(frozenset(reducer.contents))
        unchecked += [line for line in reducer.unchecked if line not in unchecked]
    return replace(found, unchecked=tuple(unchecked))


def _straight(program: Program) -> bool:
    """Whether no instruction is of use: no loops, no run-time addresses, and nobody is met."""
    return not any(
        isinstance(item, Loop)
        or INSTRUCTIONS[item.opcode].synchronises
        or any(a.dynamic is not None for a in accesses(item))
        for item in program.body
    )


# ---- what depends on what -----------------------------------------------------------------------


def _effects(number: int, block: Block) -> Iterator[_Effect]:
    for item in block:
        if isinstance(item, Loop):
            if item.register is not None:
                induction = {_register(number, item.register)}
                yield _Effect(_tests(number, item), induction, number)
            yield from _effects(number, item.body)
        else:
            yield from _effects_of(number, item)


def _effects_of(number: int, i: Instruction) -> Iterator[_Effect]:
    spec = INSTRUCTIONS[i.opcode]
    read, written = list(spec.reads(i)), list(spec.writes(i))
    reads = {_tensor(number, a.storage) for a in read}
    reads |= {("register", number, r) for r in registers_read(i, spec)}
    reads |= {("register", number, r) for r in moving_registers((*read, *written))}
    writes = {_tensor(number, a.storage) for a in written}
    writes |= {("register", number, r) for r in registers_written(i, spec)}
    state: set[Node] = {("state", number, *each) for each in spec.effects.states(i)}
    if spec.meets is not None:
        channel = spec.meets.channel(i)
        state.add(("message", channel))
        if (tensor := counts_of(i)) is not None:
            # Counts travel by themselves, whether or not the data does.
            counts = {_tensor(number, tensor.storage), ("counts", channel)}
            yield _Effect(counts, counts, number, i.ordinal, counts_only=True)
            writes -= counts
    if writes or state:
        yield _Effect(reads | state, writes | state, number, i.ordinal)


def counts_of(i: Instruction) -> Access | None:
    """The operand that says how many elements go where, if there is one."""
    name = INSTRUCTIONS[i.opcode].counts
    return i[name] if name else None


def _tensor(number: int, s: Storage) -> Node:
    """Shared tensors and inputs are the same on all cores of a rank."""
    return ("local", number, s.number) if s.role == "local" else (s.role, s.index)


def _register(number: int, register: VirtualRegister) -> Node:
    return ("register", number, register.number)


def _source(number: int, a: Access) -> Node:
    """Where a run-time address comes from."""
    assert a.dynamic is not None
    source = a.dynamic.source
    if isinstance(source, VirtualRegister):
        return _register(number, source)
    return _tensor(number, source.storage)


def _tests(number: int, loop: Loop) -> set[Node]:
    """What decides how often a loop iterates."""
    return {_register(number, r) for r in registers_of(loop)}


def registers_of(loop: Loop) -> list[VirtualRegister]:
    """Those that decide how often it iterates."""
    tested = (loop.start, loop.stop, loop.condition)
    return [r for r in tested if isinstance(r, VirtualRegister)]


def _closure(start: Collection[Node], neighbours: Any) -> set[Node]:
    found, queue = set(start), list(start)
    while queue:
        for node in neighbours(queue.pop()):
            if node not in found:
                found.add(node)
                queue.append(node)
    return found


def _undecided(
    graph: _Graph, program: Program, loop: Loop, tests: set[Node], unknown: Collection[int]
) -> LaunchError:
    needed = graph.before(tests)
    names = {s.index: s.name for s in program.storages if s.role == "input"}
    arguments = sorted(names.get(n, str(n)) for n in unknown if ("input", n) in needed)
    return LaunchError(
        f"how often this loop iterates depends on the contents of argument "
        f"{', '.join(arguments)}, and a TensorSpec has none; give an array there",
        location=program.where(loop.location),
        core=program.core,
        code="spec-contents",
    )


# ---- reducing -----------------------------------------------------------------------------------


class _Reducer:
    """Makes the skeleton of one program."""

    def __init__(
        self, number: int, program: Program, graph: _Graph, needed: set[Node], lost: set[Node]
    ) -> None:
        self.number = number
        self.full = program
        self.lost = lost
        self.real = {
            e.ordinal
            for e in graph.effects
            if e.program == number
            and e.ordinal is not None
            and not e.counts_only
            and not needed.isdisjoint(e.writes)
        }
        self.contents = {s.number for s in program.storages if _tensor(number, s) in needed}
        for i in instructions(program.body):
            if (counts := counts_of(i)) is not None:  # zeros where they aren't known
                self.contents.add(counts.storage.number)
            elif i.ordinal in self.real:  # may write a tensor, too, that nobody wants
                self.contents.update(a.storage.number for a in INSTRUCTIONS[i.opcode].writes(i))
        self.unchecked: list[str] = []
        # A tensor's life begins with the first instruction that touches it, whichever that is.
        self.births = {
            s.first for s in program.storages if s.number in self.contents and s.role == "local"
        }

    def program(self) -> Program:
        facts = dict(self.full.facts)
        facts["watched"] = []  # races are judged by values
        for name in ("poison", "runtime_psum"):
            if facts.get(name) is not None:
                facts[name] = [n for n in facts[name] if n in self.contents]
            elif name == "poison":
                facts[name] = sorted(self.contents)
        return replace(self.full, body=rewritten(self.full.body, self._instruction), facts=facts)

    def _instruction(self, i: Instruction) -> Instruction | None:
        if i.ordinal in self.real:
            return i
        fixed = i.with_tensors(lambda a: self._known(a, i))
        needed = INSTRUCTIONS[i.opcode].synchronises or i.ordinal in self.births
        return fixed if needed or run_time_arguments(fixed) else None

    def _known(self, a: Access, i: Instruction) -> Access:
        """An operand without a run-time address that isn't known."""
        if a.dynamic is None:
            return a
        if a.dynamic.kind == "scalar" and _source(self.number, a) not in self.lost:
            return a
        self._note(i)
        return Access(a.storage, a.offset, a.shape, a.strides, a.dtype)

    def _note(self, i: Instruction) -> None:
        line = self.full.where(i.location)
        if line is not None and line not in self.unchecked:
            self.unchecked.append(line)
