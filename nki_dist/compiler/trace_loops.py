"""The part of a trace that records registers and dynamic loops.

A loop's body is recorded once, into a block of its own; what a body uses from outside lives until
the loop's end, and what Python carries out of it is refused (loop_scope.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from nki_dist.compiler.control_flow import LoopFinder
from nki_dist.compiler.locations import Locations
from nki_dist.compiler.loop_scope import OpenLoop
from nki_dist.compiler.ownership import check_register
from nki_dist.errors import CompileError
from nki_dist.isa import register_move
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.scalar import NkiScalar
from nki_dist.isa.spec import released
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import UNROLLED, Block, Loop, Program, VirtualRegister

Seen = Callable[[VirtualRegister], Any]  # as what a body sees the register of its loop


class LoopTrace:
    """Where a program is being recorded: the block, the loops around it, the user's line.

    Args:
        program: what is recorded.
    """

    core: int

    def __init__(self, program: Program) -> None:
        self.program = program
        self.block: Block = program.body
        self.locations = Locations()
        self.loops = LoopFinder()
        self.order_group = 0
        self._ordinal = 0
        self._open: list[OpenLoop] = []
        self._going: list[Iterator[OpenLoop]] = []  # `while` statements, the innermost last
        self.ended: dict[int, int] = {}  # storages that ended with a loop, and its location

    def where(self) -> str | None:
        return self.locations.text(self.locations.here(2))

    def register(self) -> VirtualRegister:
        number = self.program.registers
        self.program.registers = number + 1
        return VirtualRegister(number, self)

    def register_value(self, register: VirtualRegister) -> int | None:
        """What a register holds: nothing yet, while a program is only recorded."""
        return None

    def innermost_loop(self) -> Loop | None:
        """The dynamic loop whose body is being recorded."""
        return self._open[-1].loop if self._open else None

    def unroll(self, copy: int) -> None:
        """What follows belongs to this copy of the bodies of static loops; 0: to none."""
        marks = self.program.facts.setdefault(UNROLLED, [])
        if marks and marks[-1][0] == self._ordinal:
            marks.pop()
        if copy != (marks[-1][1] if marks else 0):
            marks.append((self._ordinal, copy))

    def check_unordered(self) -> None:
        """Refuse a dynamic loop within nl.no_reorder."""
        if self.order_group:
            message = "dynamic loops aren't supported inside nl.no_reorder"
            raise CompileError(message, code="loop-in-no-reorder")

    def rounds(self, loop: Loop) -> Iterator[OpenLoop]:
        """The rounds of a loop that are recorded: one, into a block of its own."""
        self.check_unordered()
        self.block.append(loop)
        loop.outside = len(self.program.storages)
        opened = OpenLoop(loop, self.block, self._ordinal)
        self._open.append(opened)
        self.block = loop.body
        yield opened
        self._open.pop()
        opened.check_carried(self)
        self.ended.update(opened.ending(self.program))
        self.close_loop(opened)
        self.block = opened.outer

    def close_loop(self, done: OpenLoop) -> None:
        """What a loop used from outside lives until its end."""
        last = max(self._ordinal - 1, 0)
        for storage in done.touched:
            if storage.number < done.loop.outside:
                storage.first = min(storage.first, done.first)
                storage.last = last
        if self._open:
            self._open[-1].touched |= done.touched

    def register_truth(self, register: VirtualRegister) -> bool:
        """`while register:` asked twice: True opens the loop, False ends it."""
        frame = self.locations.frame(2)
        line = None if frame is None else self.loops.testing(frame)
        if frame is None or line is None:
            raise CompileError(
                "Python can't branch on a register: its value is only known when the kernel runs. "
                "Use nl.while_loop or `while register:`",
                code="branch-on-register",
            )
        return self.goes_round(register, frame, line)

    def goes_round(self, register: VirtualRegister, frame: FrameType, line: int) -> bool:
        """Whether the `while register:` in this line has another round, which then begins."""
        key = (id(frame), line)
        if self._open and self._open[-1].key == key:
            rounds = self._going.pop()
        else:
            released("while register")
            rounds = self.rounds(Loop("while", self.locations.here(2), None, condition=register))
        opened = next(rounds, None)
        if opened is None:
            return False
        self._going.append(rounds)
        opened.key = key
        opened.within(frame)
        return True

    def for_loop(
        self,
        start: Any,
        stop: Any,
        step: Any,
        body: Callable[[Any], Any],
        seen: Seen | None = None,
    ) -> None:
        for opened in self.rounds(self.counted(start, stop, step)):
            self.check_body(opened.record(body, seen))

    def check_body(self, result: Any) -> None:
        """Refuse a body of fori_loop that returned a value."""
        if result is None or isinstance(result, NkiInstruction):  # a lambda's is its call's
            return
        raise CompileError(
            f"the body of fori_loop returned {result!r}; it can't return a value. Write what "
            "the loop makes to tensors that are allocated before it",
            code="loop-body",
        )

    def dynamic_range(self, start: Any, stop: Any, step: Any) -> Iterator[VirtualRegister]:
        loop = self.counted(start, stop, step)
        frame = sys._getframe(1)  # the function with the `for`, which asks for more
        assert loop.register is not None
        for opened in self.rounds(loop):
            opened.within(frame)
            yield loop.register

    def counted(self, start: Any, stop: Any, step: Any) -> Loop:
        """A loop over start, start+step, ... with a new register, its bounds checked."""
        if isinstance(step, VirtualRegister) or not _is_int(step) or step < 1:
            message = f"loop step {step}; must be a positive int known when the kernel is traced"
            raise CompileError(message, code="loop-bound")
        for name, bound in (("start", start), ("stop", stop)):
            if isinstance(bound, VirtualRegister):
                check_register(self, bound)
            if not isinstance(bound, VirtualRegister) and not _is_int(bound):
                message = f"loop {name} {bound!r}; allowed: an int or a register"
                raise CompileError(message, code="loop-bound")
        start, stop = (b if isinstance(b, VirtualRegister) else int(b) for b in (start, stop))
        register = self.register()
        register.induction = True
        return Loop("for", self.locations.here(2), register, start, stop, int(step))

    def while_loop(self, init: Any, body: Callable[[VirtualRegister], Any]) -> None:
        loop = self.conditional(init)
        for opened in self.rounds(loop):
            self.move_condition(loop, opened.record(body))

    def conditional(self, init: Any) -> Loop:
        """A loop of while_loop, with registers of its own; `init` is in the condition's."""
        if not isinstance(init, VirtualRegister) or isinstance(init, NkiScalar):
            message = f"while_loop needs a register as condition, got {init!r}"
            raise CompileError(message, code="loop-bound")
        condition, value = self.register(), self.register()
        register_move(condition, init)
        return Loop("while", self.locations.here(2), value, condition=condition)

    def move_condition(self, loop: Loop, result: Any) -> None:
        """What the body of while_loop returned becomes its condition."""
        if not isinstance(result, VirtualRegister) or isinstance(result, NkiScalar):
            raise CompileError(
                f"the body of while_loop must return the next condition register, got {result!r}",
                code="loop-body",
            )
        register_move(loop.condition, result)


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, NkiTensor)
