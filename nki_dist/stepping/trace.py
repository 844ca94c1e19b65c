"""The trace of a debugged kernel: instructions run as they are called, and tensors have values.

A kernel of Beta 1 is the exception: its front end rewrites what it has recorded (a result that is
assigned is computed in place, products are folded into their sums). Its instructions run when
somebody asks for a value, and what the launch returns is computed by the finished program.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.compiler.loop_scope import refuse_ended
from nki_dist.compiler.ownership import owns, refuse_storage
from nki_dist.compiler.passes.allocate import check_hbm
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.spec import Spec
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Instruction, Program, Storage, VirtualRegister
from nki_dist.stepping.machine import Machine, Place
from nki_dist.stepping.rounds import RoundTrace
from nki_dist.stepping.shown import UNWRITTEN, shown


class DebugTrace(RoundTrace):
    """Records one core's program and runs it on the way.

    Args:
        place: of the core.
        options: as of Trace.

    Attributes:
        machine: that runs it.
        rewritten_late: what has run isn't what the finished program says.
    """

    def __init__(self, place: Place, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patterns = None  # what is recorded runs, which `emit` sees to
        self.machine = Machine(self.program, place, self.locations.text, self.beta1)
        self.rewritten_late = False
        self._next = 0  # of the block, to be run

    # ---- running --------------------------------------------------------------------------------

    def emit(self, spec: Spec, args: dict[str, Any], engine: str) -> NkiInstruction:
        lives = self.machine.lives
        lives.known &= not self.beta1  # which rewrites what it has recorded
        handle = super().emit(spec, args, engine)
        if lives.known:
            recorded = self.block[-1]
            assert isinstance(recorded, Instruction)
            lives.detach(recorded)
        if spec.synchronises:
            # Who waits says at which line, and messages are compared with their lines.
            self.program.locations = self.locations.table()
        if spec.synchronises or not self.beta1:
            self.run_pending()
        return handle

    def run_pending(self) -> None:
        """Run what was recorded and hasn't run."""
        block, machine = self.block, self.machine
        while self._next < len(block):
            i = block[self._next]
            assert isinstance(i, Instruction)
            self._next += 1
            machine.execute(i)

    def end_chains(self) -> None:
        super().end_chains()
        self.run_pending()
        self.machine.end_chains()

    def rewritten(self, i: Instruction, unused: Storage) -> None:
        super().rewritten(i, unused)
        if self._next == len(self.block):  # it is the last one: run it again as it is now
            self._next -= 1
            self.rewritten_late = True

    def replace(self, start: int, items: list[Instruction]) -> None:
        if self._next > start:
            # Some of it has run. Finishing changes where sums are kept, not what they are, so the
            # rest runs as it was, for whoever looks at values; results are computed anew.
            self.run_pending()
            self.rewritten_late = True
        done = self._next > start
        super().replace(start, items)
        if done:
            self._next = len(self.block)

    def finish(self) -> Program:
        self.run_pending()
        return super().finish()

    def publish(self, storage: Storage) -> None:
        contents = self.machine.memory.buffer(storage)
        super().publish(storage)
        self.machine.place.rank.adopt(self.program, storage, contents)
        if self.program.cores > 1:  # until now each had its own, and shared tensors are one
            self.rewritten_late = True

    # ---- what holds values ----------------------------------------------------------------------

    def _storage(self, *args: Any, **options: Any) -> Storage:
        storage = super()._storage(*args, **options)
        if storage.role in ("shared", "constant"):
            self._check_stack()
            self.program.locations = self.locations.table()
            self.machine.place.rank.agree(self.program, storage)
        return storage

    def _check_stack(self) -> None:
        """Refuse what no HBM stack could hold before host memory is asked for it."""
        shared = sum(s.nbytes for s in self.program.storages if s.role in ("shared", "input"))
        if shared > self.arch.hbm_stack_bytes:
            self.program.facts.setdefault("peak_hbm", 0)
            self.program.locations = self.locations.table()
            check_hbm([self.program], self.arch)

    def register(self) -> VirtualRegister:
        self.machine.core.state.registers.append(0)
        return super().register()

    def hold(self, register: VirtualRegister) -> int:
        self.machine.check()  # a loop may do nothing else
        self.run_pending()
        return self.machine.core.state.registers[register.number]

    def forget(self, numbers: list[int]) -> None:
        self.run_pending()
        self.machine.memory.forget(numbers)

    def values(self, view: NkiTensor) -> np.ndarray[Any, Any]:
        if not owns(self.program, view.storage):
            refuse_storage(self, view.storage)
        if view.storage.number in self.ended:
            refuse_ended(self, view.storage)
        self.run_pending()
        return self.machine.values(view)

    def shown(self, view: NkiTensor) -> str:
        if not owns(self.program, view.storage) or view.storage.number in self.ended:
            return "; of another launch or round"
        self.run_pending()
        values, unwritten = self.machine.values(view), self.machine.unwritten(view)
        count = int(np.count_nonzero(unwritten))
        told = f"; {UNWRITTEN} marks {count} elements that nobody has written" if count else ""
        return f", core={self.machine.place.slot.name}{told}\n{shown(values, unwritten)}\n"
