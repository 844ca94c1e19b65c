"""Runs programs without arithmetic: their control flow, messages and run-time addresses.

The cores run as ever (the same executor, scheduler, matching of messages and collectives), all in
one thread, so a deadlock is known at once. Only their memories differ: a tensor without contents
has no bytes, and an instruction that isn't carried out sees operands without elements. An algorithm
of a collective therefore sends exactly the messages it always sends, of no bytes.

Which instructions are carried out is decided by compiler.passes.skeleton. Doesn't model: contents
of on-chip tensors that share addresses (the compiler has checked these), printing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from nki_dist import arch
from nki_dist.compiler.passes.skeleton import Skeleton, counts_of
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Array, Kit, Workspace
from nki_dist.isa.operands import Register
from nki_dist.linking.products import multiplies
from nki_dist.ops.alignment import aligned
from nki_dist.ops.calls import Step, chain, nothing
from nki_dist.program import Access, Instruction, Program, Storage, instructions
from nki_dist.runtime.cores import make_core
from nki_dist.runtime.deadlock import deadlock
from nki_dist.runtime.executor import Executor
from nki_dist.runtime.group import CoreReport, make_reports
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.scheduler import Scheduler
from nki_dist.runtime.single import SingleLinker


def exchanges(skeleton: Skeleton) -> list[list[Instruction]]:
    """Of each program, the instructions that wait for other cores."""
    return [
        [i for i in instructions(p.body) if INSTRUCTIONS[i.opcode].synchronises]
        for p in skeleton.programs
    ]


def counts_in(program: Program) -> set[int]:
    """Numbers of the storages that say how much exchanges move."""
    found = map(counts_of, instructions(program.body))
    return {counts.storage.number for counts in found if counts is not None}


class _HollowKit(Kit):
    """Operands without elements, but for those whose storages are in `solid`."""

    solid: Collection[int] = ()

    def _array(self, a: Access, dtype: np.dtype) -> Array:
        if a.storage.number in self.solid:
            return super()._array(a, dtype)
        return np.empty((0,) * len(a.shape), dtype)


class _WatchedKit(Kit):
    """Knows whether an instruction that is carried out looked at where it runs."""

    looked = False

    @property
    def slot(self) -> CoreSlot:
        self.looked = True
        return self.core.slot

    @slot.setter
    def slot(self, slot: CoreSlot) -> None:
        """It is that of the core."""


class _DryLinker(SingleLinker):
    """Links a skeleton: what isn't carried out only has its run-time addresses checked.

    Args:
        contents: numbers of the storages that have some.
        rank: what every instruction that asks for a rank gets; None for what is so.
    """

    def __init__(
        self,
        program: Program,
        kit: Kit,
        real: Collection[int],
        contents: Collection[int],
        rank: int | None = None,
    ) -> None:
        super().__init__(program, kit)
        self._real = real
        self._rank = rank
        self._hollow, self._in_part = (
            _HollowKit(kit.bytes_of, kit.core, kit.arch) for _ in range(2)
        )
        self._hollow.solid = counts_in(program)
        self._in_part.solid = contents

    def find_chains(self) -> None:
        if any(multiplies(i) and i.ordinal in self._real for i in instructions(self.program.body)):
            super().find_chains()

    def linked(self, i: Instruction) -> Step:
        if i.ordinal not in self._real:
            return nothing
        numbers = rank_registers(i)
        if self._rank is None or not numbers:
            return super().linked(i)
        registers = self.kit.state.registers
        return chain([partial(registers.__setitem__, n, self._rank) for n in numbers])

    def exchange(self, i: Instruction, kit: Kit | None = None) -> Callable[[], Any]:
        if i.ordinal not in self._real:
            kit = self._hollow
        elif counts_of(i) is not None:  # its counts may be wanted, and not what it moves
            kit = self._in_part
        return super().exchange(i, kit)


def rank_registers(i: Instruction) -> list[int]:
    """Numbers of the registers that an instruction sets to the number of a rank."""
    return [
        i.args[name].number
        for name, role in INSTRUCTIONS[i.opcode].roles.items()
        if isinstance(role, Register) and role.rank
    ]


class _Memories:
    """Contents of the tensors that have some; shared by all cores of the launch.

    Args:
        inputs: per rank the arrays by index; only those with contents are looked at.
        written: indices of those that some core writes.
    """

    def __init__(self, inputs: Sequence[Sequence[np.ndarray]], written: Collection[int]) -> None:
        self._inputs, self._written = inputs, written
        self._shared: dict[tuple[Any, ...], np.ndarray] = {}

    def of(
        self, slot: CoreSlot, program: Program, contents: Collection[int]
    ) -> Callable[[Storage], np.ndarray]:
        """The bytes of a storage."""
        counts = counts_in(program)  # zeros, where what is real doesn't write them
        found = {
            s.number: self._bytes(slot, program, s, s.number in counts)
            for s in program.storages
            if s.number in contents
        }
        return lambda s: found[s.number]

    def _bytes(self, slot: CoreSlot, program: Program, s: Storage, zeros: bool) -> np.ndarray:
        if s.role == "constant":
            return np.frombuffer(s.data or b"", np.uint8)
        source = self._inputs[slot.rank][s.index] if s.role == "input" else None
        one = slot.core if s.role == "local" else slot.rank
        own = source is None or s.index in self._written
        key = (s.role, s.number if s.role == "local" else s.index, one if own else id(source))
        if key not in self._shared:
            memory = self._shared[key] = aligned(s.nbytes)
            if source is None:
                memory.view(s.dtype.raw).fill(0 if zeros else program.unwritten(s.dtype))
            else:
                _copy(source, s, memory)
        return self._shared[key]


def _copy(array: np.ndarray, s: Storage, memory: np.ndarray) -> None:
    source = np.ascontiguousarray(array).reshape(s.shape)
    if source.itemsize == s.dtype.itemsize:
        np.ndarray(s.shape, s.dtype.raw, memory)[...] = source.view(s.dtype.raw)
    else:  # runs in float32 (NKI_PRECISE_FP=0), which holds every value of a smaller float
        np.ndarray(s.shape, s.dtype.storage, memory)[...] = source.astype(s.dtype.storage)


class DryCores:
    """All cores of a world, for one dry run.

    Args:
        slots: every core of the world.
        skeleton: of the launch's programs.
        inputs: per rank the arrays by index.
        timeout, since: see Scheduler.
        collective: links collectives, if not as ever; see Wires.
        rank: what instructions that ask for a rank get, if not what is so.

    Raises:
        DeadlockError: linking alone took as long.
    """

    def __init__(
        self,
        slots: Sequence[CoreSlot],
        skeleton: Skeleton,
        inputs: Sequence[Sequence[np.ndarray]],
        timeout: float | None = None,
        collective: Callable[..., Any] | None = None,
        rank: int | None = None,
        since: float | None = None,
    ) -> None:
        self._scheduler = Scheduler(timeout=timeout, since=since)
        self._kits: list[_WatchedKit] = []
        memories = _Memories(inputs, skeleton.written)
        workspace = Workspace()
        for slot in slots:
            n = slot.lnc_core
            program = skeleton.programs[n]
            core = make_core(program, slot)
            if collective is not None:
                core.wires.collective = collective
            of = memories.of(slot, program, skeleton.contents[n])
            kit = _WatchedKit(of, core, arch.get(program.platform), workspace)
            self._kits.append(kit)
            linked = _DryLinker(program, kit, skeleton.real[n], skeleton.contents[n], rank).link()
            self._scheduler.add(Executor(program, linked, core))
            self._scheduler.check_time()

    def run(self) -> list[CoreReport]:
        """Run all cores to their end.

        Raises:
            NkiError: the first failure of any core.
        """
        waits = self.rest()
        if waits:
            raise deadlock(waits, self._scheduler.finished())
        return self.reports()

    def rest(self) -> list[Wait]:
        """Run all cores until those that haven't come to their end wait; returns their waits.

        Raises:
            NkiError: the first failure of any core.
        """
        try:
            self._scheduler.rest()
            return self._scheduler.at_rest()
        finally:
            self._scheduler.close()

    def reports(self) -> list[CoreReport]:
        """What the cores have done."""
        return make_reports(self._scheduler, 0.0)

    @property
    def looked(self) -> bool:
        """Whether an instruction that was carried out looked at where it runs."""
        return any(kit.looked for kit in self._kits)

    def progress(self) -> tuple[int, int]:
        """Instructions carried out and cores finished; any thread may ask."""
        return self._scheduler.progress()
