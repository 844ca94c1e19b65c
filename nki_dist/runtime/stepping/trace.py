"""The trace of a debugged kernel: instructions run as they are called, and tensors have values.

A kernel of Beta 1 is the exception: its front end rewrites what it has recorded (a result that is
assigned is computed in place, products are folded into their sums). Its instructions run when
somebody asks for a value, and what the launch returns is computed by the finished program.

Dynamic loops run their bodies once for every round. On other hosts a body is recorded once, and
what that makes impossible is refused (see compiler.loop_scope). The same is refused here, so a
kernel that runs in a debugger runs elsewhere: a name or list that hands a tensor to the next round,
a tensor of the body that is used after the loop, leaving a loop by `break`. What is recorded is a
program without loops: every round, with a move of the induction register at its beginning.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from nki_dist.compiler.loop_scope import OpenLoop, refuse_ended
from nki_dist.compiler.ownership import check_register, foreign, owns
from nki_dist.compiler.passes.allocate import check_hbm
from nki_dist.compiler.trace import Trace
from nki_dist.errors import CompileError
from nki_dist.isa import register_move
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.spec import Spec
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Instruction, Loop, Program, Storage, VirtualRegister
from nki_dist.runtime.stepping.machine import Machine, Place
from nki_dist.runtime.stepping.shown import UNWRITTEN, shown


class DebugTrace(Trace):
    """Records one core's program and runs it on the way.

    Args:
        place: of the core.
        options: as of Trace.

    Attributes:
        machine: that runs it.
        rewritten_late: what has run isn't what the finished program says.
        skipped: a loop whose rounds depend on data had none, so what its body would have done isn't
            recorded.
    """

    debugged = True

    def __init__(self, place: Place, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.patterns = None  # what is recorded runs, which `emit` sees to
        self.machine = Machine(self.program, place, self.locations.text, self.beta1)
        self.rewritten_late = False
        self.skipped = False
        self._next = 0  # of the block, to be run
        self._truth = False  # of the register that was asked last

    # ---- running --------------------------------------------------------------------------------

    def emit(self, spec: Spec, args: dict[str, Any], engine: str) -> NkiInstruction:
        lives = self.machine.lives
        lives.counted &= not self.beta1  # which rewrites what it has recorded
        handle = super().emit(spec, args, engine)
        if lives.counted:
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
        """Here a loop begins, goes round or ends: matmuls that follow are no continuation."""
        self.program.facts.setdefault("rounds", []).append(self._ordinal)
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

    def register_value(self, register: VirtualRegister) -> int | None:
        check_register(self, register)
        return self.hold(register)

    def hold(self, register: VirtualRegister) -> int:
        self.machine.check()  # a loop may do nothing else
        self.run_pending()
        return self.machine.core.state.registers[register.number]

    def values(self, view: NkiTensor) -> np.ndarray[Any, Any]:
        if not owns(self.program, view.storage):
            raise foreign(view.storage.label)
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

    # ---- dynamic loops --------------------------------------------------------------------------

    def register_truth(self, register: VirtualRegister) -> bool:
        """Its value; of `while register:` also the end of a round and the beginning of the next."""
        self._truth = bool(self.register_value(register))
        frame = self.locations.frame(2)
        line = None if frame is None else self._while(frame)
        if frame is None or line is None:
            return self._truth
        return self.goes_round(register, frame, line)

    def _while(self, frame: FrameType) -> int | None:
        """Line of the `while` that asks, or None for any other question.

        Raises:
            CompileError: it may be a `while`, and there is no source to tell.
        """
        try:
            return self.loops.testing(frame)
        except CompileError:
            if any(
                "JUMP" in i.opname and i.argval <= i.offset
                for i in dis.get_instructions(frame.f_code)
            ):
                raise
            return None  # nothing goes round, as in what is typed in a debugger

    def rounds(self, loop: Loop) -> Iterator[OpenLoop]:
        """As many as there are; what a round makes ends when the next one begins."""
        self.check_unordered()
        self.end_chains()
        loop.outside = fresh = len(self.program.storages)
        whole, opened = OpenLoop(loop, self.block, self._ordinal), None
        for value in self._values(loop):
            self.end_chains()
            fresh = self._finish_storages(loop, fresh)
            opened = OpenLoop(loop, self.block, self._ordinal)
            self._open.append(opened)
            if loop.register is not None:
                # Not called as kernels do: of the induction register, they may not.
                super().emit(register_move, {"dst": loop.register, "src": value}, "")
                self.run_pending()
            yield opened
            self.end_chains()
            self._open.pop()
            opened.check_carried(self)
            whole.touched |= opened.touched
        if opened is None:
            self.skipped |= loop.rounds is None
        elif opened.ending(self.program):
            self._finish_storages(loop, fresh)
        self.close_loop(whole)

    def _values(self, loop: Loop) -> Iterable[int]:
        """What a loop's register holds in its rounds."""
        if loop.kind == "for":
            bounds = loop.start, loop.stop
            start, stop = (self.hold(b) if isinstance(b, VirtualRegister) else b for b in bounds)
            return range(start, stop, loop.step)
        if loop.register is None:  # a statement, which has just asked
            return iter(lambda: int(self._truth), 0)
        assert loop.condition is not None
        return iter(partial(self.hold, loop.condition), 0)

    def _finish_storages(self, loop: Loop, start: int) -> int:
        """Tensors that a round made are gone; returns how many tensors there have been."""
        storages = self.program.storages
        numbers = [s.number for s in storages[start:] if s.role == "local"]
        self.ended.update(dict.fromkeys(numbers, loop.location))
        self.run_pending()
        self.machine.memory.forget(numbers)
        return len(storages)
