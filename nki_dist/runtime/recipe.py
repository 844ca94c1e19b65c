"""How the program of a core that has been linked is linked for others that run it.

A recipe is read off what linking for the first core gave: where segments begin and end, what waits,
which instructions have a step in common, and which steps are calls of NumPy functions with views of
operands. Another core gets one array for each view that occurs, however many steps use it, and one
step for all places that have one in common; what isn't a call is linked for it as ever.

Invariant: what a recipe makes does what linking would have given. The cores of a process that run
one program have its storages in buffers of one layout (`runtime.memory.Places`, and one layout of
the stacks): what lies in one place of the first core's memory does so in that of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from nki_dist.isa.core import Ordering
from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction, Loop
from nki_dist.runtime.addressed import Axis, Elsewhere, Linking, Moving, by_register
from nki_dist.runtime.calls import Call, View, copying
from nki_dist.runtime.facts import Facts, accesses
from nki_dist.runtime.linked import Linked, LinkedLoop, Rendezvous, Segment


class Birth(NamedTuple):
    """A step that begins the life of a storage, given by number."""

    storage: int


class Own(NamedTuple):
    """A step that each core links, without a look at who else may have it."""

    facts: Facts


What: TypeAlias = "Birth | Call | Moving | Own | None"  # None: what linking makes of it


class Notes:
    """What the steps of a core do, as far as others can do it; by identity."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Step, What]] = {}

    def add(self, step: Step, what: What) -> None:
        """Note a step."""
        self._found[id(step)] = step, what

    def shared(self, step: Step) -> bool:
        """Whether instructions that have it do so because they are alike."""
        found = self._found.get(id(step))
        return found is not None and type(found[1]) is not Own

    def of(self, step: Step) -> What:
        """What it does; None if it was never noted."""
        found = self._found.get(id(step))
        return None if found is None else found[1]


class Maker(Linking, Protocol):
    """Of a Linker, what makes steps for its core."""

    def birth(self, number: int) -> Step: ...
    def own(self, i: Instruction, facts: Facts) -> Step: ...
    def step_of(self, i: Instruction) -> Step: ...
    def start_of(self, i: Instruction) -> Callable[[], Any]: ...


class _Fresh(NamedTuple):
    """A step that is made for each core.

    Attributes:
        i: the first instruction that has it.
        numbers: of the arguments, where it calls a function.
    """

    what: What
    i: Instruction
    numbers: tuple[int, ...]


class _Segment(NamedTuple):
    """A segment: steps that are new in it, and all its steps, by number."""

    fresh: list[_Fresh]
    steps: list[int]
    instructions: list[Instruction]
    moves: bool = False


class _Wait(NamedTuple):
    """See `Rendezvous`."""

    i: Instruction
    orders: Ordering


class _Loop(NamedTuple):
    loop: Loop
    body: list[Any]


class Recipe:
    """See the module's docstring.

    Args:
        linked: of the first core.
        notes: of its steps.
        kit: of it.
    """

    def __init__(self, linked: Linked, notes: Notes, kit: Kit) -> None:
        self._kit, self._notes = kit, notes
        self._table: list[Any] = []  # arguments: views, and what is the same for all cores
        self._places: dict[tuple[Any, ...], int] = {}
        self._numbers: dict[int, int] = {}  # of steps that occur in several places
        self._move: list[bool] = []  # whether the steps do no more than move bits, by number
        self._items = self._block(linked)
        del self._kit, self._notes, self._places, self._numbers, self._move

    def _block(self, block: Linked) -> list[Any]:
        return [self._item(item) for item in block]

    def _item(self, item: Any) -> _Segment | _Loop | _Wait:
        if type(item) is Rendezvous:
            return _Wait(item.instruction, item.orders)
        if type(item) is LinkedLoop:
            return _Loop(item.loop, self._block(item.body))
        found = _Segment([], [], item.instructions)
        for step, i in zip(item.steps, item.instructions, strict=True):
            shared = self._notes.shared(step)
            number = self._numbers.get(id(step)) if shared else None
            if number is None:
                number = len(self._move)
                what = self._notes.of(step)
                arguments = what.arguments if isinstance(what, (Call, Moving)) else ()
                numbers = tuple([self._argument(a) for a in arguments])
                found.fresh.append(_Fresh(what, i, numbers))
                self._move.append(_moves(what, i))
                if shared:
                    self._numbers[id(step)] = number
            found.steps.append(number)
        item.moves = all(map(self._move.__getitem__, found.steps))
        return found._replace(moves=item.moves)

    def _argument(self, a: Any) -> int:
        """The number of an argument in the table; storages in one buffer have views in common."""
        view = _view_of(a)
        if type(view) is not View:
            self._table.append(a)
            return len(self._table) - 1
        key = (id(self._kit.bytes_of(view.storage)), *view[1:])
        if key not in self._places:
            self._places[key] = len(self._table)
            self._table.append(view)
        return self._places[key]

    def follow(self, maker: Maker) -> Linked:
        """The linked program of another core."""
        kit = maker.kit
        table = [a.of(kit) if type(a) is View else a for a in self._table]
        return _Cook(maker, table).block(self._items)


def _moves(what: What, i: Instruction) -> bool:
    """Whether a step is known to do no more than move bits, or to be no affair of tensors."""
    if isinstance(what, (Call, Moving)):
        kinds = {a.dtype for a in map(_view_of, what.arguments) if type(a) is View}
        return what.function is np.copyto and len(kinds) == 1
    return isinstance(what, Birth) or (isinstance(what, Own) and not accesses(i))


def _view_of(argument: Any) -> Any:
    return argument.view if type(argument) is Axis else argument


class _Cook:
    """Makes the steps of one core.

    Args:
        table: the arguments, with the core's arrays.
    """

    def __init__(self, maker: Maker, table: Sequence[Any]) -> None:
        self._maker = maker
        self._registers = maker.kit.state.registers
        self._elsewhere = Elsewhere(maker).run
        self._argument = table.__getitem__
        self._made: list[Step] = []

    def block(self, items: Sequence[Any]) -> Linked:
        linked: Linked = []
        for item in items:
            if type(item) is _Segment:
                for fresh in item.fresh:
                    self._made.append(self._step(*fresh))
                steps = list(map(self._made.__getitem__, item.steps))
                linked.append(Segment(steps, item.instructions, item.moves))
            elif type(item) is _Loop:
                linked.append(LinkedLoop(item.loop, self.block(item.body)))
            else:
                linked.append(Rendezvous(self._maker.start_of(item.i), item.i, item.orders))
        return linked

    def _step(self, what: What, i: Instruction, numbers: tuple[int, ...]) -> Step:
        if isinstance(what, Own):
            return self._maker.own(i, what.facts)
        arguments = list(map(self._argument, numbers))
        if isinstance(what, Moving):
            if what.single is None:
                return what.step(arguments, i, self._maker.kit, self._elsewhere)
            first, second = arguments
            return by_register(
                what.function, *what.single, self._registers, first, second, i, self._elsewhere
            )
        if isinstance(what, Call):
            if what.function is np.copyto:
                return copying(*arguments)
            return partial(what.function, *arguments)
        if isinstance(what, Birth):
            return self._maker.birth(what.storage)
        return self._maker.step_of(i)
