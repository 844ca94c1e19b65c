"""Instructions with run-time addresses, carried out by one core.

Most do the same wherever their operands lie, and are bound once (`linking.moving`). All others are
lowered for each address they meet, and what was made is kept, because loops come back to the same
addresses at every launch; so are indices outside, where rows may be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.isa.kit import Kit
from nki_dist.linking.addresses import parts
from nki_dist.linking.moving import Moving
from nki_dist.ops.calls import Step, chain
from nki_dist.program import Dynamic, Instruction, VirtualRegister

CACHED: Final = 4096  # addresses for which what was made is kept, of each instruction

BoundCall: TypeAlias = "tuple[Callable[..., Any], Sequence[Any], Sequence[tuple[int, int]]]"
"""A call: function, arguments, and which of them have an axis of an operand's indices in front."""


class AtRunTime:
    """What a core settles when it runs.

    Args:
        kit: of the core.
        link: gives the step of an instruction whose addresses are known.
    """

    def __init__(self, kit: Kit, link: Callable[[Instruction], Step]) -> None:
        self._kit, self._link = kit, link

    def value(self, dynamic: Dynamic) -> int:
        """The index a run-time access uses now."""
        source = dynamic.source
        if isinstance(source, VirtualRegister):
            return self._kit.state.registers[source.number]
        return int(self._kit.view(source).reshape(())[()])

    def parts(self, i: Instruction) -> list[Instruction]:
        """What runs now: the instruction itself, or those parts of it that are inside.

        These are exactly the rows that are moved; with `oob_mode.skip` there may be none.

        Raises:
            OutOfBoundsError: an index is out of bounds, and not to be skipped.
        """
        return parts(i, self.value)

    def step_of(self, i: Instruction) -> Step:
        """What an instruction does at the addresses that it has now."""
        steps = []
        for part in self.parts(i):
            # What is kept outlives what comes next, and scratch is never live across instructions.
            self._kit.begin()
            steps.append(self._link(part))
        return chain(steps)  # none where all rows are outside and to be skipped

    def exchange(
        self, i: Instruction, link: Callable[[Instruction], Callable[[], Any]]
    ) -> Callable[[], Any]:
        """What begins an instruction that waits for others, at the addresses that it then has."""

        def start() -> Any:
            self._kit.begin(waits=True)
            (now,) = self.parts(i)  # no exchange has an oob_mode
            return link(now)()

        return start

    def step(self, i: Instruction, sources: Sequence[Dynamic]) -> Step:
        """The step of an instruction that is lowered for each address it meets.

        Args:
            sources: of its run-time addresses.
        """
        cache: dict[tuple[int, ...], Step] = {}

        def run() -> None:
            key = tuple(map(self.value, sources))
            step = cache.get(key)
            if step is None:
                step = self.step_of(i)
                if len(cache) < CACHED:
                    cache[key] = step
            step()

        return run

    def moving(self, what: Moving, calls: Sequence[BoundCall]) -> Step:
        """The step of an instruction that does the same wherever its operands lie."""
        # Where an index isn't in its interval:
        away = self.step(what.instruction, what.sources)
        if len(calls) == len(what.sources) == 1 and len(calls[0][2]) == 1:
            source, (least, most) = what.sources[0].source, what.intervals[0]
            function, arguments, ((place, _),) = calls[0]
            if type(source) is VirtualRegister and len(arguments) == 2:
                registers, number = self._kit.state.registers, source.number
                bounds = number, least, most - least
                return _by_register(function, place, arguments, registers, bounds, away)
        questions = [
            (partial(self.value, source), least, most - least)
            for source, (least, most) in zip(what.sources, what.intervals, strict=True)
        ]

        def step() -> None:
            indices = []
            for index, least, last in questions:
                at = index() - least
                if not 0 <= at <= last:
                    away()
                    return
                indices.append(at)
            for function, arguments, axes in calls:
                now = list(arguments)
                for place, operand in axes:
                    now[place] = arguments[place][indices[operand]]
                function(*now)

        return step


def _by_register(
    function: Callable[..., Any],
    place: int,
    arguments: Sequence[Any],
    registers: Sequence[int],
    bounds: tuple[int, int, int],
    away: Step,
) -> Step:
    """The step of one call with two arguments, one of which a register chooses.

    Most late instructions are copies like that, and are little more than finding the place.
    """
    first, second = arguments
    number, least, last = bounds
    if place:

        def out_of() -> None:
            at = registers[number] - least
            if 0 <= at <= last:
                function(first, second[at])
            else:
                away()

        return out_of
    if function is np.copyto and getattr(second, "dtype", None) is first.dtype:

        def store() -> None:
            at = registers[number] - least
            if 0 <= at <= last:
                first[at] = second
            else:
                away()

        return store

    def to() -> None:
        at = registers[number] - least
        if 0 <= at <= last:
            function(first[at], second)
        else:
            away()

    return to
