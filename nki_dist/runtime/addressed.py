"""Instructions whose addresses are known when they run: one step for all of them.

Where such an instruction does nothing but call a function with views of its operands, an operand
with a run-time address is one view with an axis more, along which lie all indices that are inside;
the step takes the one that it is asked for. So nothing is linked, and nothing kept, per address.
All other instructions are linked for each address they meet, and what was linked is kept, because
loops come back to the same addresses at every launch; so are indices outside, where rows may be
skipped.

Invariant: the views are those that linking for the address would have given. They were learnt at
one address (`runtime.forms`); if no two operands are in one storage, nothing but where views begin
depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step, chain
from nki_dist.program import Dynamic, Instruction, VirtualRegister
from nki_dist.runtime.calls import View
from nki_dist.runtime.facts import FactTable

KEPT_ADDRESSES = 4096  # linked variants kept per instruction with run-time addresses


class Linking(Protocol):
    """Of a Linker, what is needed here."""

    kit: Kit
    facts: FactTable

    def value(self, dynamic: Dynamic) -> int: ...
    def linked(self, i: Instruction) -> Step: ...
    def addressed(self, i: Instruction) -> list[Instruction]: ...


class Axis(NamedTuple):
    """A view with an axis of indices.

    Attributes:
        view: its dimension 0 are the indices, from the least one on.
        operand: which of the operands with a run-time address it is of.
    """

    view: View
    operand: int


class Moving(NamedTuple):
    """What an instruction with run-time addresses does, wherever they lie.

    Attributes:
        arguments: of the function; some are views, some views with an axis.
        sources: for each operand with a run-time address, where its index is.
        intervals: least and most index.
        single: where there is one view with an axis among two arguments, and a register has the
            index, which is most of what there is: the register, the place of the view, the least
            index, and how many follow.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    sources: tuple[Dynamic, ...]
    intervals: tuple[tuple[int, int], ...]
    single: tuple[int, int, int, int] | None

    def of(self, i: Instruction, kit: Kit, elsewhere: Callable[[Instruction], None]) -> Step:
        """The step of a core; see `step`."""
        views = [a.view if type(a) is Axis else a for a in self.arguments]
        arrays = [a.of(kit) if type(a) is View else a for a in views]
        return self.step(arrays, i, kit, elsewhere)

    def step(
        self,
        arrays: Sequence[Any],
        i: Instruction,
        kit: Kit,
        elsewhere: Callable[[Instruction], None],
    ) -> Step:
        """The step of a core.

        Args:
            arrays: the arguments, with the core's arrays instead of views.
            elsewhere: does the instruction where an index isn't in its interval.
        """
        function = self.function
        if self.single is not None:
            first, second = arrays
            registers = kit.state.registers
            return by_register(function, *self.single, registers, first, second, i, elsewhere)
        questions = [
            (_question(source, kit), least, most - least)
            for source, (least, most) in zip(self.sources, self.intervals, strict=True)
        ]
        places = [
            (place, arrays[place], a.operand)
            for place, a in enumerate(self.arguments)
            if type(a) is Axis
        ]

        def step() -> None:
            indices = []
            for index, least, last in questions:
                at = index() - least
                if not 0 <= at <= last:
                    elsewhere(i)
                    return
                indices.append(at)
            now = list(arrays)
            for place, axis, operand in places:
                now[place] = axis[indices[operand]]
            function(*now)

        return step


def by_register(
    function: Callable[..., Any],
    number: int,
    place: int,
    least: int,
    last: int,
    registers: Sequence[int],
    first: Any,
    second: Any,
    i: Instruction,
    elsewhere: Callable[[Instruction], None],
) -> Step:
    """The step of `Moving.single`.

    Args:
        first, second: arguments of the function; see `Moving.step` for the others.
    """
    if place:

        def out_of() -> None:
            at = registers[number] - least
            if 0 <= at <= last:
                function(first, second[at])
            else:
                elsewhere(i)

        return out_of
    if function is np.copyto and first.dtype is second.dtype:  # see runtime.calls

        def store() -> None:
            at = registers[number] - least
            if 0 <= at <= last:
                first[at] = second
            else:
                elsewhere(i)

        return store

    def to() -> None:
        at = registers[number] - least
        if 0 <= at <= last:
            function(first[at], second)
        else:
            elsewhere(i)

    return to


def _question(dynamic: Dynamic, kit: Kit) -> Callable[[], int]:
    """Reads the index that a run-time access uses now."""
    source = dynamic.source
    if isinstance(source, VirtualRegister):
        return partial(kit.state.registers.__getitem__, source.number)
    cell = kit.view(source).reshape(())

    def read() -> int:
        return int(cell[()])

    return read


class Variants:
    """An instruction of a core that is linked for each address it meets, and kept.

    Args:
        find: what it does wherever its operands lie, asked when it meets a second address: most of
            those that one core has alone meet one.
    """

    __slots__ = ("_find", "_i", "_kept", "_linker", "_moved", "_sources")

    def __init__(
        self, i: Instruction, linker: Linking, find: Callable[[], Moving | None] | None = None
    ) -> None:
        self._i, self._linker, self._find = i, linker, find
        self._sources = [a.dynamic for a in linker.facts.of(i).dynamic if a.dynamic is not None]
        self._kept: dict[tuple[int, ...], Step] = {}
        self._moved: Step | None = None

    def run(self) -> None:
        """Execute the instruction.

        Raises:
            OutOfBoundsError: an index is out of bounds, and not to be skipped.
        """
        if self._moved is not None:
            self._moved()
            return
        key = tuple(map(self._linker.value, self._sources))
        step = self._kept.get(key)
        if step is None:
            step = self._second() if self._kept and self._find is not None else None
            if step is None:
                step = self._link()
                if len(self._kept) < KEPT_ADDRESSES:
                    self._kept[key] = step
        step()

    def _second(self) -> Step | None:
        assert self._find is not None
        found, self._find = self._find(), None
        if found is not None:
            elsewhere = Elsewhere(self._linker)
            self._moved = found.of(self._i, self._linker.kit, elsewhere.run)
            self._kept.clear()
        return self._moved

    def _link(self) -> Step:
        steps = []
        for part in self._linker.addressed(self._i):
            # Variants outlive each other, so their scratch must not be shared with instructions
            # that were linked for another place; it is never live across instructions, so slots
            # may be.
            self._linker.kit.begin()
            steps.append(self._linker.linked(part))
        return chain(steps)  # none where all rows are outside and to be skipped


class Elsewhere:
    """The instructions of a core where an index isn't in its interval."""

    def __init__(self, linker: Linking) -> None:
        self._linker = linker
        self._variants: dict[int, Variants] = {}

    def run(self, i: Instruction) -> None:
        """Execute an instruction; see `Variants`."""
        variants = self._variants.get(i.ordinal)
        if variants is None:
            variants = self._variants[i.ordinal] = Variants(i, self._linker)
        variants.run()
