"""The run loop of one core: a coroutine that yields whenever it has to wait for a message."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import Core
from nki_dist.program import Instruction, Program, VirtualRegister
from nki_dist.runtime.host_memory import typed
from nki_dist.runtime.linker import Linked, LinkedLoop, Rendezvous, Segment
from nki_dist.runtime.messages import Message, Wait

Coroutine = Generator[Wait, Message, None]


class Stopped(Exception):
    """The run was ended from outside."""


class Executor:
    """Runs a linked program.

    Attributes:
        trips: how often each dynamic loop went round, in the order loops were entered; together
            with the program it says exactly what was executed (the timing model replays it).
        done: instructions executed.
    """

    def __init__(self, program: Program, linked: Linked, core: Core) -> None:
        self.program = program
        self.linked = linked
        self.core = core
        self.state = core.state
        self.trips: list[int] = []
        self.done = 0

    def run(self) -> Coroutine:
        """Begin a launch: its coroutine, to be resumed with the message it waits for."""
        self.trips, self.done = [], 0
        self.state.reset()
        return self._block(self.linked)

    def _block(self, block: Linked) -> Coroutine:
        for item in block:
            if self.state.stopping:
                raise Stopped
            if type(item) is Segment:
                self._segment(item)
            elif type(item) is Rendezvous:
                yield from self._exchange(item)
            else:
                yield from self._loop(item)

    def _segment(self, segment: Segment) -> None:
        n = -1
        try:
            with np.errstate(all="ignore"):  # poison in unused lanes is normal
                for n, step in enumerate(segment.steps):  # noqa: B007
                    step()
        except (NkiError, MemoryError) as error:
            placed = self._placed(error, segment.instructions[n])
            raise placed from placed.__cause__
        self.done += len(segment.steps)

    def _exchange(self, exchange: Rendezvous) -> Coroutine:
        try:
            generator = exchange.start()
            if generator is not None:
                message = None
                while True:
                    try:
                        wait = generator.send(message)
                    except StopIteration:
                        break
                    arrived = yield wait
                    message = arrived.payload
        except (NkiError, MemoryError) as error:
            placed = self._placed(error, exchange.instruction)
            raise placed from placed.__cause__
        self.done += 1
        self.state.epoch += exchange.orders

    def _loop(self, item: LinkedLoop) -> Coroutine:
        loop, registers = item.loop, self.state.registers
        entry = len(self.trips)
        self.trips.append(0)
        if loop.kind == "for":
            assert loop.register is not None
            stop = self._bound(loop.stop)
            for value in range(self._bound(loop.start), stop, loop.step):
                registers[loop.register.number] = value
                self.trips[entry] += 1
                yield from self._block(item.body)
            return
        assert loop.condition is not None
        while registers[loop.condition.number]:
            if loop.register is not None:
                registers[loop.register.number] = registers[loop.condition.number]
            self.trips[entry] += 1
            yield from self._block(item.body)

    def _bound(self, bound: Any) -> int:
        value = self.state.registers[bound.number] if isinstance(bound, VirtualRegister) else bound
        return int(value)

    def _placed(self, error: NkiError | MemoryError, i: Instruction) -> NkiError:
        return typed(error).at(
            location=self.program.where(i.location),
            core=self.core.slot.name,
            instruction=INSTRUCTIONS[i.opcode].title,
        )
