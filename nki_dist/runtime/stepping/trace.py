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
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from nki_dist.compiler.loop_scope import OpenLoop, refuse_ended
from nki_dist.compiler.ownership import check_register, foreign, owns
from nki_dist.compiler.passes.allocate import check_hbm
from nki_dist.compiler.trace import Trace
from nki_dist.compiler.trace_loops import Seen
from nki_dist.errors import CompileError
from nki_dist.isa import register_move
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.spec import Spec, released
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Instruction, Loop, Program, Storage, VirtualRegister
from nki_dist.runtime.stepping.machine import Machine, Place
from nki_dist.runtime.stepping.shown import UNWRITTEN, shown


@dataclass
class _Rounds:
    """A loop that is going round.

    Attributes:
        first: ordinal of its first instruction.
        touched: storages that it has used.
        fresh: number of the first storage that the current round could make.
        any: there has been a round.
    """

    loop: Loop
    first: int
    fresh: int
    any: bool = False
    touched: set[Storage] = field(default_factory=set)


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
        self._going: list[_Rounds] = []  # `while` statements that go round, the innermost last

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

    # ---- the loops of nki.language --------------------------------------------------------------

    def dynamic_range(self, start: Any, stop: Any, step: Any) -> Iterator[VirtualRegister]:
        loop = self.counted(start, stop, step)
        frame = sys._getframe(1)  # the function with the `for`, which asks for more
        rounds = self._begin(loop)
        assert loop.register is not None
        for value in self._values(loop):
            self._round(rounds, value).within(frame)
            yield loop.register
            self._end_round(rounds)
        self._end(rounds)

    def for_loop(
        self,
        start: Any,
        stop: Any,
        step: Any,
        body: Callable[[Any], Any],
        seen: Seen | None = None,
    ) -> None:
        loop = self.counted(start, stop, step)
        rounds = self._begin(loop)
        for value in self._values(loop):
            self.check_body(self._round(rounds, value).record(body, seen))
            self._end_round(rounds)
        self._end(rounds, function=True)

    def while_loop(self, init: Any, body: Callable[[VirtualRegister], Any]) -> None:
        loop = self.conditional(init)
        rounds = self._begin(loop)
        assert loop.condition is not None
        while value := self.hold(loop.condition):
            self.move_condition(loop, self._round(rounds, value).record(body))
            self._end_round(rounds)
        self._end(rounds, function=True)

    def register_truth(self, register: VirtualRegister) -> bool:
        """Its value; of `while register:` also the end of a round and the beginning of the next."""
        value = bool(self.register_value(register))
        frame = self.locations.frame(2)
        line = None if frame is None else self._while(frame)
        if frame is None or line is None:
            return value
        key = (id(frame), line)
        if self._open and self._open[-1].key == key:
            rounds = self._going.pop()
            self._end_round(rounds)
            if not value:
                self._end(rounds)
                return False
        elif value:
            released("while register")
            rounds = self._begin(Loop("while", self.locations.here(2), None, condition=register))
        else:
            self.end_chains()
            self.skipped = True
            return False
        self._going.append(rounds)
        opened = self._round(rounds)
        opened.key = key
        opened.within(frame)
        return True

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

    # ---- rounds -------------------------------------------------------------------------------

    def _values(self, loop: Loop) -> range:
        start, stop = (
            self.hold(b) if isinstance(b, VirtualRegister) else b for b in (loop.start, loop.stop)
        )
        return range(start, stop, loop.step)

    def _begin(self, loop: Loop) -> _Rounds:
        self.check_unordered()
        self.end_chains()
        loop.outside = len(self.program.storages)
        return _Rounds(loop, self._ordinal, loop.outside)

    def _round(self, rounds: _Rounds, value: int | None = None) -> OpenLoop:
        """Begin a round: what the last one made has ended."""
        loop, count = rounds.loop, len(self.program.storages)
        self.end_chains()
        self._finish_storages(loop, rounds.fresh, count)
        rounds.fresh, rounds.any = count, True
        opened = OpenLoop(loop, self.block, self._ordinal)
        self._open.append(opened)
        if loop.register is not None and value is not None:
            # Not called as kernels do: of the induction register, they may not.
            super().emit(register_move, {"dst": loop.register, "src": value}, "")
            self.run_pending()
        return opened

    def _end_round(self, rounds: _Rounds) -> None:
        self.end_chains()
        done = self._open.pop()
        done.check_carried(self)
        rounds.touched |= done.touched

    def _end(self, rounds: _Rounds, function: bool = False) -> None:
        """What a loop used from outside lives until its end, as it does where it is recorded once.

        Args:
            function: its body is a function, so nothing that it made may be used afterwards.
        """
        loop = rounds.loop
        if not rounds.any and not _static(loop):
            self.skipped = True
        last = max(self._ordinal - 1, 0)
        for storage in rounds.touched:
            if storage.number < loop.outside:
                storage.first = min(storage.first, rounds.first)
                storage.last = last
        if self._open:
            self._open[-1].touched |= rounds.touched
        ended = OpenLoop(loop, self.block, rounds.first).ending(self.program)
        if function or ended:
            self._finish_storages(loop, rounds.fresh, len(self.program.storages))

    def _finish_storages(self, loop: Loop, start: int, stop: int) -> None:
        """Tensors that a round made are gone."""
        numbers = [s.number for s in self.program.storages[start:stop] if s.role == "local"]
        self.ended.update(dict.fromkeys(numbers, loop.location))
        self.run_pending()
        self.machine.memory.forget(numbers)


def _static(loop: Loop) -> bool:
    """Whether the kernel's text says how often it goes round."""
    return loop.kind == "for" and isinstance(loop.start, int) and isinstance(loop.stop, int)
