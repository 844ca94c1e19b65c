"""A core that runs instructions one by one, as a kernel's Python calls them.

An instruction is linked when its operands are known and then runs at once, with what other hosts
run: the same linker, meanings and exchanges, so the same bits. Where it has to wait for another
core, `Turns` lets the others run.

To the scheduler it looks like `runtime.Executor`: a coroutine that yields what it waits for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nki_dist import arch
from nki_dist.collectives.check import check_groups
from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import NkiError, NkiValidationError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.kit import Kit, Workspace
from nki_dist.isa.spec import Spec
from nki_dist.isa.transfers import fixed
from nki_dist.linking.addresses import inside, outside
from nki_dist.linking.chains import Chain, Chains
from nki_dist.linking.located import raise_at
from nki_dist.program import Access, Instruction, Program, Storage, psum
from nki_dist.program.walk import run_time_arguments
from nki_dist.runtime.cores import make_core
from nki_dist.runtime.executor import Coroutine, Stopped
from nki_dist.runtime.overdue import Position
from nki_dist.runtime.running import Running
from nki_dist.runtime.single import SingleLinker
from nki_dist.runtime.stepping.lives import Lives
from nki_dist.runtime.stepping.memory import Arena, CoreMemory, RankMemory
from nki_dist.runtime.stepping.turns import Turns
from nki_dist.topology.topology import Topology

GROUPS: Final = "replica_group"  # the parameter that says who meets, or who would


@dataclass(frozen=True)
class Place:
    """Where a core is, and what it shares with others of its process.

    Attributes:
        slot: in the world.
        world: that its collectives are compared with.
        strict: as of `collectives.check`.
        rank: memory of the rank.
        arena, workspace: one for all cores, which run in turn.
        print: called with (prefix, array) by device_print.
    """

    slot: CoreSlot
    world: Topology
    strict: bool
    rank: RankMemory
    arena: Arena
    workspace: Workspace
    print: Callable[[str, np.ndarray], None]


class Machine:
    """Runs the instructions of one core.

    Args:
        program: that is being recorded; it grows.
        place: of the core.
        where: `file:line` of a location number, before the program has its table.
        beta1: it is of a kernel of Beta 1.

    Attributes:
        ends: when the run is given up, by time.monotonic(); the scheduler sets it.
        trips: none, as no loop is left in what runs.
        done: instructions executed.
    """

    def __init__(
        self, program: Program, place: Place, where: Callable[[int], str | None], beta1: bool
    ) -> None:
        self.program = program
        self.place = place
        self.core = make_core(program, place.slot)
        self.core.wires.print = place.print
        self.lives = Lives(program)
        platform = arch.get(program.platform)
        self._kit = Kit(lambda s: self.memory.buffer(s), self.core, platform, place.workspace)
        self.memory = CoreMemory(program, place.rank, place.arena, self.lives, self._kit.masks)
        self._linker = SingleLinker(program, self._kit)
        self._chains = Chains(platform, self._ended, beta1)
        self._running: dict[Chain, Running] = {}
        self._where = where
        self._now: Instruction | None = None
        self.turns: Turns | None = None
        self.ends = math.inf
        self.trips: list[int] = []
        self.done = 0

    # ---- as the scheduler sees it -------------------------------------------------------------

    def run(self) -> Coroutine:
        """The coroutine that is the kernel's run on this core."""
        assert self.turns is not None
        return self.turns.coroutine()

    def position(self) -> Position:
        """Where the run is; any thread may ask."""
        i = self._now
        title = None if i is None else INSTRUCTIONS[i.opcode].title
        where = None if i is None else self._where(i.location)
        slot = self.place.slot
        return Position(slot.core, slot.lnc, title, where, self.done)

    # ---- instructions -------------------------------------------------------------------------

    def execute(self, i: Instruction) -> None:
        """Run an instruction, and wait in it for other cores if it must.

        Raises:
            NkiError: it can't be run; with its place.
            Stopped: the time is up.
        """
        self.check()
        spec = INSTRUCTIONS[i.opcode]
        self._now, self.memory.now = i, i.ordinal
        try:
            if spec.synchronises or GROUPS in i.args:
                self._compare_groups(i)
            if spec.synchronises:
                self._chains.feed(i)
                self._exchange(spec, i)
            elif run_time_arguments(i):
                self._chains.feed(i)
                for part in self._linker.late.parts(i):
                    self._run(spec, part, settled=False)
                    self.memory.moved[i.ordinal] += spec.writes(part)
            else:
                self._run(spec, i, settled=True)
        except (NkiError, MemoryError) as error:
            raise_at(error, i, self._where(i.location), self.place.slot.name)
        self.done += 1

    def check(self) -> None:
        """Nothing, or the end of the run.

        Raises:
            Stopped: the time is up.
            Ended: the launch has ended elsewhere.
        """
        assert self.turns is not None
        self.turns.check()
        if time.monotonic() > self.ends:
            raise Stopped

    def _compare_groups(self, i: Instruction) -> None:
        try:
            check_groups(i, self.place.world, self.place.strict)
        except NkiValidationError as error:  # of the program, not of this rank
            raise error.at(core=self.program.core) from None

    def _run(self, spec: Spec, i: Instruction, settled: bool) -> None:
        if spec.accumulates:
            self._accumulate(i)
        with np.errstate(all="ignore"):  # poison in unused lanes is normal
            chain = self._chains.feed(i) if settled else None
            if chain is None or self._begins(chain):
                self._kit.begin()
                self._linker.linked(i)()

    def _accumulate(self, i: Instruction) -> None:
        """Say what a matmul does with what it finds; see `compiler.passes.accumulate`.

        That pass has to leave to the run what it can't know; here every address is known, but for
        those of columns.
        """
        a, adds = i.args["dst"], i.args["accumulate"]
        if a.storage.region is not psum:
            return
        if a.storage.number not in self._kit.masks:
            self._kit.masks[a.storage.number] = np.zeros(a.storage.nbytes // 2, bool)
        if adds is None and not is_indirect(a):
            sums = self._kit.accumulating(a)
            adds = True if sums.all() else None if sums.any() else False
        i.accumulation = "runtime" if adds is None else "add" if adds else "replace"

    def _begins(self, chain: Chain) -> bool:
        """Keep what a matmul multiplies; whether it is the first of its chain, which runs at once.

        Sums of several are formed when somebody looks at them.
        """
        running = self._running.get(chain)
        if running is None:
            running = self._running[chain] = Running(chain, self._kit)
            running.begin()
        running.add(chain.members[-1].factors)
        return not running.several

    def _ended(self, chain: Chain) -> None:
        running = self._running.pop(chain)
        if running.several:
            running.settle()

    def end_chains(self) -> None:
        """What follows continues no chain of matmuls."""
        with np.errstate(all="ignore"):
            self._chains.end()

    def _settle(self, storage: Storage) -> None:
        """Somebody looks at a storage, which ends nothing."""
        with np.errstate(all="ignore"):
            for chain in self._chains.open:
                if chain.dst.storage is storage and self._running[chain].several:
                    self._running[chain].settle()

    def _exchange(self, spec: Spec, i: Instruction) -> None:
        assert self.turns is not None
        generator = self._linker.exchange(i)()
        payload = None
        while generator is not None:
            try:
                wait = generator.send(payload)
            except StopIteration:
                break
            payload = self.turns.wait(wait)
            self.check()
        self.core.state.epochs.met(ordering(self.program, i))

    # ---- values -------------------------------------------------------------------------------

    def view(self, a: Access) -> Access:
        """A view with its run-time index as it is now.

        Raises:
            NkiValidationError: it has one for every row or column.
            OutOfBoundsError: the index is outside.
        """
        if a.dynamic is None:
            return a
        if a.dynamic.kind != "scalar" or is_indirect(a):
            raise NkiValidationError(
                f"values of a view of {a.storage.label} with a run-time index for every row or "
                "column; copy it to a tile and look at that",
                code="debug-view",
            )
        index = self._linker.late.value(a.dynamic)
        if not inside(a, index):
            raise outside(a, index)
        return fixed(a, self._linker.late.value)

    def values(self, a: Access) -> np.ndarray[Any, Any]:
        """A copy of a view's values, in the dtype that callers of kernels get."""
        self._settle(a.storage)
        copy: np.ndarray[Any, Any] = self._kit.view(self.view(a)).copy().view(a.dtype.dtype)
        return copy

    def unwritten(self, a: Access) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which elements of a view nobody has written."""
        self._settle(a.storage)
        return self.memory.unwritten(self.view(a))
