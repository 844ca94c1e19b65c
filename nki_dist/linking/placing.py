"""Gives what a linked program uses its memory: the views and steps of all cores that run it.

Binding is then one array for each view and one call for each operation, however many instructions
have them in common; see `runtime.binding`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from nki_dist.arch import Arch
from nki_dist.linking.addresses import sources
from nki_dist.linking.exchanges import Exchanges
from nki_dist.linking.kinds import Kind, Run, equal_key
from nki_dist.linking.lanes import Planner, Schedule, scheduled
from nki_dist.linking.linked import Late, Linked, LinkedLoop, Segment
from nki_dist.linking.lives import Laned, buffer_needs, lives, on_lanes
from nki_dist.linking.lowering import SCRATCH
from nki_dist.linking.memory import Life, Places, places
from nki_dist.linking.moving import moving
from nki_dist.linking.panels import assign
from nki_dist.ops.calls import only_moves
from nki_dist.ops.function import Function
from nki_dist.ops.operation import Operation
from nki_dist.ops.place import Place, Space
from nki_dist.program import Dynamic, Instruction

# Between two looks at the clock and at whether the run has been ended from outside:
SEGMENT = 1000  # instructions, and
SEGMENT_ELEMENTS = 16 << 20  # elements that they touch: tenths of a second

BUDGET = 256 << 20  # bytes that the lanes of a process may need more than one thread does

_new = tuple.__new__

Call: TypeAlias = "tuple[Function, tuple[int, ...]]"
"""A function, and its arguments by number."""


class Step(NamedTuple):
    """What an instruction does.

    Attributes:
        calls: in order.
        moves: they do no more than move bits, so NumPy has nothing to warn of.
        elements: that they touch.
    """

    calls: tuple[Call, ...]
    moves: bool
    elements: int


@dataclass
class LanedSegment:
    """Instructions that several threads carry out.

    Attributes:
        steps: of each, in the order in which they begin; see Segment.
        schedule: which lane has which, by place among the steps.
        births: see Segment.
    """

    steps: list[Any]
    instructions: list[Instruction]
    schedule: Schedule
    births: frozenset[int]


class Placed:
    """A linked program in the memory that its cores have.

    Args:
        linked: the program.
        arch: its platform.
        memory: what `places` gives for the program, if somebody has it.
        without: passes that are left out.
        threads: that may carry it out.
        cores: that share what lanes may need more than one thread does.

    Attributes:
        arguments: of the calls, by number: places (whose spaces may be ("part", n), as
            several storages share memory), slots and constants.
        steps: by number.
        body: of Segment, LinkedExchange and LinkedLoop.
        scratch: bytes that its steps need.
        exchanges: what instructions that wait keep for the cores.
        sources: of run-time addresses, by ordinal of the instructions that have some.
        per_lane: kinds of spaces of which each lane has its own.
        panels: places of panels: bytes, and the number among those of this size.
    """

    def __init__(
        self,
        linked: Linked,
        arch: Arch,
        memory: Places | None = None,
        without: Collection[str] = (),
        threads: int = 1,
        cores: int = 1,
    ) -> None:
        self.linked, self.arch = linked, arch
        self.scratch = linked.spaces.get(SCRATCH, 0)
        self.exchanges = Exchanges()
        self.sources: dict[int, tuple[Dynamic, ...]] = {}
        self.arguments: list[Any] = []
        self.steps: list[Step] = []
        self.per_lane: tuple[str, ...] = ()
        self._numbers: dict[Any, int] = {}  # of arguments
        self._likes: dict[Any, int] = {}  # of what operands have in common wherever they lie
        self._views: dict[Any, int] = {}  # of arguments, by where they lie and like what
        self._where: dict[Space, Space] = {}
        self._at: dict[Any, int] = {}  # of steps
        self._threads = threads
        self.places = places(linked.program) if memory is None else memory
        body, at = (
            self._body_on_lanes(cores) if threads > 1 else (linked.body, assign(linked.panels))
        )
        self.panels = list(dict.fromkeys(at.values()))
        self._panel_at = {number: self.panels.index(place) for number, place in at.items()}
        self._parts = dict(zip(self.places.numbers, self.places.where))
        self._kinds = [self._kind(kind) for kind in linked.kinds]
        self._runs = [self._run(run) for run in linked.runs]
        self._moving = "addresses" not in without and not linked.masked
        self.body = self._block(body)

    def _body_on_lanes(self, cores: int) -> tuple[list[Any], dict[int, tuple[int, int]]]:
        """The body with lanes where they gain, and where panels are then.

        What runs at the same time can't share memory. Where that needs too much, there are none.
        """
        linked, planner = self.linked, Planner(self.linked, self._threads)
        panels = assign(linked.panels)
        body, several = on_lanes(linked.body, planner)
        if several:
            of: dict[str, dict[int, Life]] = {"storage": {}, "panel": {}}
            for (what, number), life in lives(linked, body, planner).items():
                if what in of:
                    of[what][int(number)] = life
            apart = places(linked.program, of["storage"]), assign(linked.panels, of["panel"])
            if _bytes(*apart) <= _bytes(self.places, panels) + BUDGET // cores:
                self.per_lane, self.places = planner.per_lane, apart[0]
                return body, apart[1]
        return linked.body, panels

    def _buffer(self, space: Space) -> Space | None:
        """The memory of a space that may share it with others."""
        there = self.space(space)
        if there[0] == "part":
            return "buffer", self.places.parts[int(there[1])][0]
        return there if there[0] == "panel" else None

    def space(self, space: Space) -> Space:
        """Where a space is; storages that share memory are in one."""
        if space[0] == "panel":
            return "panel", self._panel_at[int(space[1])]
        if space[0] == "storage" and (part := self._parts.get(int(space[1]))) is not None:
            return "part", part
        return space

    def greediest(self, space: Space) -> Instruction | None:
        """The first of those whose arguments need most of a space, if any does."""
        needs = [
            a.span()[1] if type(a) is Place and a.space == space else 0 for a in self.arguments
        ]
        most, found = 0, None
        for step, i in _steps(self.body):
            calls = self.steps[step].calls if type(step) is int else getattr(step, "calls", ())
            need = max((needs[n] for call in calls for n in call[1]), default=0)
            if need > most:
                most, found = need, i
        return found

    def _kind(self, kind: Kind) -> tuple[list[Any], bool, int]:
        """For each operation its function and arguments: numbers, or what depends on bases."""
        found = []
        for o in kind.operations:
            arguments: list[Any] = []
            for a in o.arguments:
                if type(a) is Place and a.space[0] == "operand":
                    rest = a.shape, a.strides, a.dtype
                    like = self._likes.setdefault(rest, len(self._likes))
                    arguments.append((int(a.space[1]), a.offset, like, rest))
                else:
                    arguments.append(self.argument(a))
            found.append((o.function, arguments))
        return found, all(map(only_moves, kind.operations)), sum(map(_elements, kind.operations))

    def _run(self, run: Run) -> int:
        calls, moves, elements = self._kinds[run.kind]
        where = self._where
        bases = []
        for space, offset in run.bases:
            there = where.get(space)
            if there is None:
                there = where[space] = self.space(space)
            bases.append((there, offset))
        key = run.kind, tuple(bases)
        number = self._at.get(key)
        if number is None:
            views, arguments = self._views, self.arguments
            placed = []
            for function, given in calls:
                found = []
                for a in given:
                    if type(a) is tuple:
                        n, offset, like, rest = a
                        space, base = bases[n]
                        view = space, base + offset, like
                        a = views.get(view)
                        if a is None:
                            a = views[view] = len(arguments)
                            arguments.append(_new(Place, (space, base + offset, *rest)))
                    found.append(a)
                placed.append((function, tuple(found)))
            number = self._at[key] = len(self.steps)
            self.steps.append(_new(Step, (tuple(placed), moves, elements)))
        return number

    def argument(self, a: Any) -> int:
        """The number of an argument."""
        if type(a) is Place:
            a = a.moved(self.space(a.space), 0)
        key = a if type(a) is Place else ("constant", equal_key(a))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.arguments)
            self.arguments.append(a)
        return number

    def _block(self, block: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for item in block:
            if isinstance(item, Segment):
                found += self._segments(item)
            elif isinstance(item, Laned):
                found.append(self._laned(item))
            elif isinstance(item, LinkedLoop):
                found.append(LinkedLoop(item.loop, self._block(item.body)))
            else:
                self._asks(item.instruction)
                found.append(item)
        return found

    def _asks(self, i: Instruction) -> None:
        if found := sources(i):
            self.sources[i.ordinal] = found

    def _laned(self, laned: Laned) -> LanedSegment:
        spaces = set().union(*laned.touched)
        needs = buffer_needs(laned, {space: self._buffer(space) for space in spaces})
        schedule = scheduled(laned.lane_of, needs, self._threads)
        steps = [self._settled(run) if type(run) is Late else self._runs[run] for run in laned.runs]
        return LanedSegment(steps, laned.instructions, schedule, laned.births)

    def _settled(self, late: Late) -> Any:
        self._asks(late.instruction)
        moved = moving(late.instruction, self.arch, self.argument) if self._moving else None
        if moved is None:
            return late
        self.scratch = max(self.scratch, moved.scratch)
        return moved

    def _segments(self, straight: Segment) -> list[Segment]:
        segment, elements = Segment([], [], True), 0
        found = [segment]
        for n, (run, i) in enumerate(zip(straight.steps, straight.instructions, strict=True)):
            if len(segment.steps) >= SEGMENT or elements > SEGMENT_ELEMENTS:
                segment, elements = Segment([], [], True), 0
                found.append(segment)
            if n in straight.births:
                segment.births.add(len(segment.steps))
            if type(run) is Late:
                moved = self._settled(run)
                segment.steps.append(moved)
                segment.moves &= type(moved) is not Late and moved.moves
            else:
                number = self._runs[run]
                step = self.steps[number]
                segment.steps.append(number)
                segment.moves &= step.moves
                elements += step.elements
            segment.instructions.append(i)
        return found


def _bytes(found: Places, panels: Mapping[int, tuple[int, int]]) -> int:
    return sum(found.sizes) + sum(size for size, _ in set(panels.values()))


def _steps(body: Sequence[Any]) -> Iterator[tuple[Any, Instruction]]:
    for item in body:
        if isinstance(item, LinkedLoop):
            yield from _steps(item.body)
        elif isinstance(item, (Segment, LanedSegment)):
            yield from zip(item.steps, item.instructions, strict=True)


def _elements(o: Operation) -> int:
    return sum([a.size for a in o.arguments if type(a) is Place])
