"""Running a recorded launch again in this process, and watching what it does on the way.

Programs are deterministic, and cores meet through messages only, so every replay carries out the
same instructions in the same order with the same values: an instruction is named by its number in
that order. Numbers count what all cores of the launch carry out; an instruction of which a run-time
index leaves several parts counts for each, and one that waits for other cores has a second number
when it ends.

Nothing of a replay outlives it but what the watch keeps. Doesn't check for races and doesn't print:
the launch itself has.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nki_dist import arch
from nki_dist.compiler.compiled import Compiled
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit, Workspace
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction, Program, Storage
from nki_dist.runtime.cores import make_core
from nki_dist.runtime.executor import Executor
from nki_dist.runtime.memory import Memory
from nki_dist.runtime.single import SingleLinker
from nki_dist.runtime.stepping.again import carry_out

Key: TypeAlias = "tuple[Any, ...]"
Hook: TypeAlias = "Callable[[int], Any]"  # called with the instruction's number
Hooks: TypeAlias = "tuple[Hook | None, Hook | None]"  # before it and after it


@dataclass(frozen=True)
class Launched:
    """What makes a launch: enough to carry it out again.

    Attributes:
        each: per rank, the programs as they are run.
        inputs: per rank, arrays by index that nobody else changes.
        slots: every core of the world.
        timeout: seconds after which a replay is given up; None for never.
    """

    each: Sequence[Compiled]
    inputs: Sequence[Sequence[np.ndarray]]
    slots: Sequence[CoreSlot]
    timeout: float | None = None

    @property
    def compiled(self) -> Compiled:
        """What rank 0 ran; other ranks have other programs only if Python chose by values."""
        return self.each[0]

    def program(self, core: int) -> Program:
        """The program of a core, numbered over the world."""
        slot = self.slots[core]
        return self.each[slot.rank].programs[slot.lnc_core]

    def where(self, core: int, i: Instruction) -> str | None:
        """The kernel line of an instruction."""
        return self.program(core).where(i.location)


def key_of(slot: CoreSlot, storage: Storage) -> Key:
    """Equal for what is one tensor: memory in HBM belongs to the rank, other memory to the core."""
    if storage.role == "local":
        return ("local", slot.core, storage.number)
    return (storage.role, slot.rank, storage.index)


class Place(NamedTuple):
    """One core of a replay, while its program is linked and run."""

    slot: CoreSlot
    program: Program
    kit: Kit


class Watch:
    """What a replay tells. Each method does nothing unless it is overridden."""

    now = -1  # number of what was carried out last; the replay counts

    def tick(self) -> int:
        """The next number."""
        self.now += 1
        return self.now

    def linking(self, place: Place, i: Instruction) -> Hooks:
        """What to call before and after an instruction whose run-time address is known."""
        return None, None

    def birth(self, place: Place, storage: Storage) -> None:
        """A storage is being filled with what stands for unwritten memory."""

    def beside(self, place: Place, i: Instruction) -> Sequence[Callable[[], Any]]:
        """Generator functions to run before an instruction that waits for others: each yields what
        it waits for, as the instruction does."""
        return ()

    def met(self, sender: int, receiver: int, nbytes: int) -> None:
        """The second of these instructions took a message, of so many bytes, of the first."""


class Enough(Exception):
    """Raised by a watch that has seen what it wanted; the replay ends quietly."""


class _Sent(NamedTuple):
    """What a message carries in a replay, and the number of the instruction that sent it."""

    number: int
    payload: Any
    nbytes: int = 0


class _WatchedLinker(SingleLinker):
    """Links a program with hooks around its instructions."""

    def __init__(self, place: Place, watch: Watch) -> None:
        super().__init__(place.program, place.kit)
        self._place, self._watch, self._tick = place, watch, watch.tick
        self._send: Callable[..., None] | None = None

    def linked(self, i: Instruction) -> Step:
        before, after = self._watch.linking(self._place, i)
        # There may be many: a partial has half the size of a function with what it closes over.
        return partial(_watched, self._tick, before, super().linked(i), after)

    def birth(self, number: int) -> Step:
        step, storage = super().birth(number), self.program.storages[number]

        def born() -> None:
            self._watch.tick()
            step()
            self._watch.birth(self._place, storage)

        return born

    def exchange(self, i: Instruction, kit: Kit | None = None) -> Callable[[], Any]:
        place, watch, start = self._place, self._watch, super().exchange(i, kit)

        def begin() -> Any:
            number = watch.tick()
            (resolved,) = self.late.parts(i)
            before, after = watch.linking(place, resolved)
            if before is not None:
                before(number)
            wires = self.kit.wires
            send = self._send = self._send or wires.send

            def told(to: int, channel: str, payload: Any, *rest: Any) -> None:
                send(to, channel, _Sent(number, payload, getattr(payload, "nbytes", 0)), *rest)

            wires.send = told
            return self._followed([*watch.beside(place, resolved), start], number, after)

        return begin

    def _followed(
        self, starts: Sequence[Callable[[], Any]], number: int, after: Hook | None
    ) -> Generator[Any, Any, None]:
        for start in starts:
            exchange, payload = start(), None
            while exchange is not None:
                try:
                    wait = exchange.send(payload)
                except StopIteration:
                    break
                sender, payload, nbytes = yield wait
                self._watch.met(sender, number, nbytes)
        self._watch.tick()
        if after is not None:
            after(number)


def _watched(tick: Callable[[], int], before: Hook | None, step: Step, after: Hook | None) -> None:
    number = tick()
    if before is not None:
        before(number)
    step()
    if after is not None:
        after(number)


def replay(launched: Launched, watch: Watch) -> None:
    """Carry a launch out again.

    Raises:
        NkiError: as the launch would, had it failed; the time is up.
    """

    def make(slot: CoreSlot, program: Program, memory: Memory, workspace: Workspace) -> Executor:
        core = make_core(program, slot)
        kit = Kit(memory.buffer, core, arch.get(program.platform), workspace)
        return Executor(program, _WatchedLinker(Place(slot, program, kit), watch).link(), core)

    watch.now = -1
    with suppress(Enough):
        carry_out(launched.slots, launched.each, launched.inputs, make, launched.timeout)


def title(i: Instruction) -> str:
    """How messages call an instruction."""
    return INSTRUCTIONS[i.opcode].title
