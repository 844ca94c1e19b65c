"""The part of a trace that records registers and dynamic loops.

A loop's body is recorded once, into a block of its own; what a body uses from outside lives until
the loop's end, and what Python carries out of it is refused (loop_scope.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from nki_dist.compiler.control_flow import LoopFinder
from nki_dist.compiler.locations import Locations
from nki_dist.compiler.loop_scope import OpenLoop
from nki_dist.compiler.ownership import check_register
from nki_dist.errors import CompileError
from nki_dist.isa import register_move
from nki_dist.isa.handle import NkiInstruction
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Block, Loop, Program, VirtualRegister


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
        self.ended: dict[int, int] = {}  # storages that ended with a loop, and its location

    def where(self) -> str | None:
        return self.locations.text(self.locations.here(2))

    def register(self) -> VirtualRegister:
        number = self.program.registers
        self.program.registers = number + 1
        return VirtualRegister(number, self)

    def open_loop(self, loop: Loop) -> None:
        if self.order_group:
            raise CompileError(
                "dynamic loops aren't supported inside nl.no_reorder",
                location=self.where(),
                code="loop-in-no-reorder",
            )
        self.block.append(loop)
        loop.outside = len(self.program.storages)
        self._open.append(OpenLoop(loop, self.block, self._ordinal))
        self.block = loop.body

    def close_loop(self) -> None:
        """End the innermost loop: what it uses from outside lives until its end."""
        done = self._open.pop()
        done.check_carried(self)
        self.ended.update(done.made(self.program))
        last = max(self._ordinal - 1, 0)
        for storage in done.touched:
            if storage.number < done.loop.outside:
                storage.first = min(storage.first, done.first)
                storage.last = last
        if self._open:
            self._open[-1].touched |= done.touched
        self.block = done.outer

    def register_truth(self, register: VirtualRegister) -> bool:
        """`while register:` asked twice: True opens the loop, False ends it."""
        frame = self.locations.frame(2)
        line = None if frame is None else self.loops.testing(frame)
        if frame is None or line is None:
            raise CompileError(
                "Python can't branch on a register: its value is only known when the kernel runs. "
                "Use nl.while_loop or `while register:`",
                location=self.where(),
                code="branch-on-register",
            )
        key = (id(frame), line)
        if self._open and self._open[-1].key == key:
            self.close_loop()
            return False
        self.open_loop(Loop("while", self.locations.here(2), None, condition=register))
        self._open[-1].key = key
        self._open[-1].within(frame)
        return True

    def for_loop(
        self, start: Any, stop: Any, step: Any, body: Callable[[VirtualRegister], Any]
    ) -> None:
        register = self._begin_for(start, stop, step)
        result = self._open[-1].record(body, register)
        if not (result is None or isinstance(result, NkiInstruction)):  # a lambda's is its call's
            raise CompileError(
                f"the body of fori_loop returned {result!r}; it can't return a value. Write what "
                "the loop makes to tensors that are allocated before it",
                location=self.where(),
                core=self.core,
                code="loop-body",
            )
        self.close_loop()

    def dynamic_range(self, start: Any, stop: Any, step: Any) -> Iterator[VirtualRegister]:
        register = self._begin_for(start, stop, step)
        self._open[-1].within(sys._getframe(1))  # the function with the `for`, which asks for more
        yield register
        self.close_loop()

    def _begin_for(self, start: Any, stop: Any, step: Any) -> VirtualRegister:
        if isinstance(step, VirtualRegister) or not _is_int(step) or step < 1:
            raise CompileError(
                f"loop step {step}; must be a positive int known when the kernel is traced",
                location=self.where(),
                code="loop-bound",
            )
        for name, bound in (("start", start), ("stop", stop)):
            if isinstance(bound, VirtualRegister):
                check_register(self, bound)
            if not isinstance(bound, VirtualRegister) and not _is_int(bound):
                raise CompileError(
                    f"loop {name} {bound!r}; allowed: an int or a register",
                    location=self.where(),
                    code="loop-bound",
                )
        start, stop = (b if isinstance(b, VirtualRegister) else int(b) for b in (start, stop))
        register = self.register()
        register.induction = True
        self.open_loop(Loop("for", self.locations.here(2), register, start, stop, int(step)))
        return register

    def while_loop(self, init: Any, body: Callable[[VirtualRegister], Any]) -> None:
        if not isinstance(init, VirtualRegister):
            raise CompileError(
                f"while_loop needs a register as condition, got {init!r}",
                location=self.where(),
                code="loop-bound",
            )
        condition, value = self.register(), self.register()
        register_move(condition, init)
        self.open_loop(Loop("while", self.locations.here(2), value, condition=condition))
        result = self._open[-1].record(body, value)
        if not isinstance(result, VirtualRegister):
            raise CompileError(
                f"the body of while_loop must return the next condition register, got {result!r}",
                location=self.where(),
                code="loop-body",
            )
        register_move(condition, result)
        self.close_loop()


def _is_int(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, NkiTensor)
