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
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from nki_dist import arch
from nki_dist.compiler.compiled import Compiled
from nki_dist.hbm.layout import Layout, common_inputs, fill_common, fill_stack, lay_out
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit, Workspace
from nki_dist.linking.blas import one_blas_thread
from nki_dist.linking.memory import places
from nki_dist.ops.alignment import aligned
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction, Program, Storage
from nki_dist.runtime.cores import make_core
from nki_dist.runtime.executor import Executor
from nki_dist.runtime.host_memory import waits_for_others
from nki_dist.runtime.memory import Memory, Pool
from nki_dist.runtime.scheduler import Scheduler
from nki_dist.runtime.single import SingleLinker

Key: TypeAlias = "tuple[Any, ...]"
Hook: TypeAlias = "Callable[[int], Any]"  # called with the instruction's number
Hooks: TypeAlias = "tuple[Hook | None, Hook | None]"  # before it and after it


@dataclass(frozen=True)
class Launched:
    """What makes a launch: enough to carry it out again.

    Attributes:
        compiled: the programs, as they are run.
        inputs: per rank, arrays by index that nobody else changes.
        slots: every core of the world.
        timeout: seconds after which a replay is given up; None for never.
    """

    compiled: Compiled
    inputs: Sequence[Sequence[np.ndarray]]
    slots: Sequence[CoreSlot]
    timeout: float | None = None

    def program(self, core: int) -> Program:
        """The program of a core, numbered over the world."""
        return self.compiled.programs[self.slots[core].lnc_core]

    def where(self, core: int, i: Instruction) -> str | None:
        """The kernel line of an instruction."""
        return self.program(core).where(i.location)


def key_of(slot: CoreSlot, storage: Storage) -> Key:
    """Equal for what is one tensor: memory in HBM belongs to the rank, other memory to the core."""
    if storage.role == "local":
        return ("local", slot.core, storage.number)
    return (storage.role, slot.rank, storage.index)


@dataclass
class Place:
    """One core of a replay, while its program is linked and run.

    Attributes:
        masks: by storage number, which elements of PSUM hold what matmuls left, where a matmul
            decides at run time whether it adds.
    """

    slot: CoreSlot
    program: Program
    kit: Kit
    masks: dict[int, np.ndarray] = field(default_factory=dict)


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

    def birth(self, place: Place, storage: Storage) -> Hook | None:
        """What to call when a storage is filled with what stands for unwritten memory."""
        return None

    def beside(self, place: Place, i: Instruction) -> Sequence[Callable[[], Any]]:
        """Generator functions to run before an instruction that waits for others: each yields what
        it waits for, as the instruction does."""
        return ()

    def sent(self, core: int, to: int, channel: str) -> None:
        """A core sent a message."""

    def taken(self, core: int, source: int, channel: str) -> None:
        """A core took the next message of a channel."""


class Enough(Exception):
    """Raised by a watch that has seen what it wanted; the replay ends quietly."""


class _WatchedLinker(SingleLinker):
    """Links a program with hooks around its instructions."""

    def __init__(self, place: Place, watch: Watch) -> None:
        super().__init__(place.program, place.kit)
        self._place, self._watch = place, watch
        place.masks = self.kit.masks

    def linked(self, i: Instruction) -> Step:
        step = super().linked(i)
        tick = self._watch.tick
        before, after = self._watch.linking(self._place, i)
        if before is None and after is None:

            def counted() -> None:
                tick()
                step()

            return counted

        def watched() -> None:
            number = tick()
            if before is not None:
                before(number)
            step()
            if after is not None:
                after(number)

        return watched

    def birth(self, number: int) -> Step:
        step, tick = super().birth(number), self._watch.tick
        hook = self._watch.birth(self._place, self.program.storages[number])

        def born() -> None:
            number = tick()
            step()
            if hook is not None:
                hook(number)

        return born

    def exchange(self, i: Instruction, kit: Kit | None = None) -> Callable[[], Any]:
        place, watch = self._place, self._watch
        start = super().exchange(i, kit)

        def begin() -> Any:
            number = watch.tick()
            (resolved,) = self.late.parts(i)
            before, after = watch.linking(place, resolved)
            if before is not None:
                before(number)
            return self._followed([*watch.beside(place, resolved), start], number, after)

        return begin

    def _followed(
        self, starts: Sequence[Callable[[], Any]], number: int, after: Hook | None
    ) -> Generator[Any, Any, None]:
        for start in starts:
            exchange = start()
            message = None
            while exchange is not None:
                try:
                    wait = exchange.send(message)
                except StopIteration:
                    break
                message = yield wait
                self._watch.taken(self._place.slot.core, wait.source, wait.channel)
        self._watch.tick()
        if after is not None:
            after(number)


class _Zeroed(Pool):
    """Buffers that hold zeros at first, so that replays agree in what nobody writes or reads."""

    def add(self, buffer: np.ndarray) -> None:
        buffer.fill(0)
        super().add(buffer)


def replay(launched: Launched, watch: Watch) -> None:
    """Carry a launch out again.

    Raises:
        NkiError: as the launch would, had it failed; the time is up.
    """
    watch.now = -1
    compiled = launched.compiled
    layout = lay_out(compiled, common_inputs(launched.inputs))
    stacks, common = _filled(layout, launched)
    scheduler = Scheduler(timeout=launched.timeout)
    workspace, pools = Workspace(), dict[int, _Zeroed]()
    waits = [waits_for_others(p) for p in compiled.programs]
    try:
        for slot in launched.slots:
            program = compiled.programs[slot.lnc_core]
            pool = pools.setdefault(slot.core if waits[slot.lnc_core] else -1, _Zeroed())
            memory = Memory(
                program, places(program), stacks[slot.rank], layout.offsets, common, pool
            )
            core = make_core(program, slot)
            kit = Kit(memory.buffer, core, arch.get(program.platform), workspace)
            linked = _WatchedLinker(Place(slot, program, kit), watch).link()
            scheduler.add(Executor(program, linked, core))
            _tell_sends(core.wires, slot.core, watch)
            scheduler.check_time()
        with one_blas_thread():
            scheduler.run()
    except Enough:
        pass
    finally:
        scheduler.close()


def _filled(layout: Layout, launched: Launched) -> tuple[list[np.ndarray], np.ndarray]:
    stacks = []
    for arrays in launched.inputs:
        stack = aligned(max(layout.stack_bytes, 1))
        fill_stack(layout, stack, arrays)
        stacks.append(stack)
    common = aligned(max(layout.common_bytes, 1))
    if layout.common:
        fill_common(layout, common, launched.inputs[0])
    return stacks, common


def _tell_sends(wires: Any, core: int, watch: Watch) -> None:
    send = wires.send

    def told(to: int, channel: str, *rest: Any) -> None:
        watch.sent(core, to, channel)
        send(to, channel, *rest)

    wires.send = told


def title(i: Instruction) -> str:
    """How messages call an instruction."""
    return INSTRUCTIONS[i.opcode].title
