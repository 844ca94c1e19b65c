"""The run loop of one core: a coroutine that yields whenever it has to wait for a message."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import Core
from nki_dist.linking.linked import LinkedExchange, LinkedLoop, Segment
from nki_dist.linking.located import raise_at
from nki_dist.program import Instruction, Program, VirtualRegister
from nki_dist.runtime.binding import Bound
from nki_dist.runtime.lanes import Lanes
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.overdue import Position
from nki_dist.runtime.team import Team

Coroutine = Generator[Wait, Any, None]  # gives what it waits for, and is sent the payload


class Stopped(Exception):
    """The run was ended from outside, or its time was up."""


class Executor:
    """Runs a linked program.

    Attributes:
        trips: how often each dynamic loop iterated, in the order loops were entered; together
            with the program it says exactly what was executed (the timing model replays it).
        ends: when the run is given up, by time.monotonic(). Another thread may set it to -inf.
    """

    def __init__(
        self, program: Program, linked: Bound, core: Core, team: Team | None = None
    ) -> None:
        self.program = program
        self.linked = linked
        self.core = core
        self.state = core.state
        self.team = team or Team()
        self.ends = math.inf
        self._begin()

    def _begin(self) -> None:
        self.trips: list[int] = []
        self._lanes: Lanes | None = None  # of what is under way on several threads
        self._done = 0  # without what was begun last
        # Of what was begun last, the instructions and those that are left: replaced as a whole, so
        # other threads see both or neither. An iterator knows how far it is, so nobody counts.
        self._now: tuple[Sequence[Instruction], Iterator[Any]] = (), iter(())
        self._loops: list[tuple[LinkedLoop, int]] = []  # that are open, and their place in `trips`

    def run(self) -> Coroutine:
        """Begin a launch: its coroutine, which is sent what messages carry."""
        self._begin()
        self.ends = math.inf
        self.state.reset()
        return self._block(self.linked)

    @property
    def done(self) -> int:
        """Instructions executed; any thread may ask."""
        instructions, left = self._now
        lanes = self._lanes
        more = 0 if lanes is None else lanes.done()
        return self._done + len(instructions) - operator.length_hint(left) + more

    def position(self) -> Position:
        """Where the run is, or has ended; any thread may ask."""
        instructions, left = self._now
        at = max(len(instructions) - operator.length_hint(left) - 1, 0)
        i = instructions[at] if instructions else None
        if (lanes := self._lanes) is not None:
            i = lanes.now()
        slot = self.core.slot
        return Position(
            slot.core,
            slot.lnc,
            None if i is None else INSTRUCTIONS[i.opcode].title,
            None if i is None else self.program.where(i.location),
            self.done,
            tuple(
                (self.program.where(item.loop.location), self.trips[entry])
                for item, entry in reversed(self._loops)
            ),
        )

    def _block(self, block: Bound) -> Coroutine:
        clock = time.monotonic
        for item in block:
            if clock() > self.ends:
                raise Stopped
            if type(item) is Segment:
                self._segment(item)
            elif type(item) is Lanes:
                self._on_lanes(item)
            elif type(item) is LinkedExchange:
                yield from self._exchange(item)
            else:
                yield from self._loop(item)

    def _segment(self, segment: Segment) -> None:
        self._done += len(self._now[0])
        steps = iter(segment.steps)
        self._now = segment.instructions, steps
        try:
            if segment.moves:
                for step in steps:
                    step()
            else:
                with np.errstate(all="ignore"):  # poison in unused lanes is normal
                    for step in steps:
                        step()
        except (NkiError, MemoryError) as error:
            failed = len(segment.steps) - operator.length_hint(steps) - 1
            self._raise(error, segment.instructions[failed])

    def _on_lanes(self, lanes: Lanes) -> None:
        self._done += len(self._now[0])
        self._now, self._lanes = ((), iter(())), lanes
        failed = lanes.run(self.team, lambda: self.ends)
        if lanes.stopped:
            raise Stopped
        self._lanes, self._now = None, (lanes.instructions, iter(()))
        if failed is not None:
            i, error = failed
            if not isinstance(error, (NkiError, MemoryError)):
                raise error
            self._raise(error, i)

    def _exchange(self, exchange: LinkedExchange) -> Coroutine:
        self._done += len(self._now[0])
        self._now = (exchange.instruction,), iter(())
        try:
            generator = exchange.start()
            if generator is not None:
                yield from generator
        except (NkiError, MemoryError) as error:
            self._raise(error, exchange.instruction)
        orders, tensor = exchange.orders
        if tensor is None:  # as `met` does; a call less for every message
            self.state.epochs.everywhere += orders
        else:
            self.state.epochs.met(exchange.orders)

    def _loop(self, item: LinkedLoop) -> Coroutine:
        loop, registers = item.loop, self.state.registers
        entry = len(self.trips)
        self.trips.append(0)
        self._loops.append((item, entry))
        if loop.kind == "for":
            assert loop.register is not None
            stop = self._bound(loop.stop)
            for value in range(self._bound(loop.start), stop, loop.step):
                registers[loop.register.number] = value
                self.trips[entry] += 1
                yield from self._block(item.body)
        else:
            assert loop.condition is not None
            while registers[loop.condition.number]:
                if loop.register is not None:
                    registers[loop.register.number] = registers[loop.condition.number]
                self.trips[entry] += 1
                yield from self._block(item.body)
        self._loops.pop()

    def _bound(self, bound: Any) -> int:
        value = self.state.registers[bound.number] if isinstance(bound, VirtualRegister) else bound
        return int(value)

    def _raise(self, error: NkiError | MemoryError, i: Instruction) -> NoReturn:
        raise_at(error, i, self.program.where(i.location), self.core.slot.name)
