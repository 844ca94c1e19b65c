"""Loops whose bodies are being recorded, and what Python can't carry out of them.

The body of a dynamic loop is recorded once. Two things that Python allows would therefore give
results that no loop gives, and are refused:

- a tensor made in the body and used after the loop: if the loop doesn't run, nobody made it. AWS's
  rules for `fori_loop` and `while_loop` forbid it however often they run (NKI migration guide, 0.5
  to 0.6); `dynamic_range` may do it if the loop surely runs.
- `acc = nl.add(acc, tile)`: the recorded body reads the `acc` of before the loop in every round.

The second is found by looking at the variables of the function the loop is in: one that held a
tensor which the body used, that the body reads before it sets it, and that holds another tensor at
the end of the body. Tensors in lists and attributes, and Python numbers, aren't followed.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NoReturn

from nki_dist.errors import CompileError
from nki_dist.isa.scalar import NkiScalar
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Block, Loop, Program, Storage

_ACCESS = re.compile(r"(LOAD|STORE)_(?:FAST|DEREF|NAME)(?!_AND_CLEAR)")


class OpenLoop:
    """A loop whose body is being recorded.

    Attributes:
        loop, outer: the loop, and the block that it is in.
        first: ordinal of the first instruction of the body.
        touched: storages that the body used.
        key: tells the `while` statement that opened it from others.
    """

    def __init__(self, loop: Loop, outer: Block, first: int) -> None:
        self.loop = loop
        self.outer = outer
        self.first = first
        self.touched: set[Storage] = set()
        self.key: tuple[int, int] | None = None
        self._is_function = False
        self._code: CodeType | None = None
        self._at = -1
        self._variables: Callable[[], dict[str, Any]] = dict
        self._before: dict[str, Any] = {}

    def within(self, frame: FrameType) -> None:
        """The body is that of a `for` or `while` statement, which `frame` is executing."""
        self._watch(frame.f_code, frame.f_lasti, lambda: dict(frame.f_locals))

    def record(self, body: Callable[..., Any], seen: Callable[[Any], Any] | None = None) -> Any:
        """Record a body that is a function of the loop's register; returns what it returned.

        Args:
            seen: makes of the register what the body is given.
        """
        self._is_function = True
        if hasattr(body, "__code__"):
            self._watch(body.__code__, -1, lambda: _captured(body))
        register: Any = self.loop.register
        return body(register if seen is None else seen(register))

    def _watch(self, code: CodeType, at: int, variables: Callable[[], dict[str, Any]]) -> None:
        self._code, self._at, self._variables = code, at, variables
        self._before = variables()

    def ending(self, program: Program) -> dict[int, int]:
        """Numbers of storages that end with the loop, each with the loop's location."""
        if not self._is_function and self.loop.rounds:
            return {}
        ending = program.storages[self.loop.outside :]
        return {s.number: self.loop.location for s in ending if s.role == "local"}

    def check_carried(self, trace: Any) -> None:
        """Refuse a variable that carries a tensor from one round to the next.

        Raises:
            CompileError: there is one.
        """
        after = self._variables()
        suspects = [name for name, old in self._before.items() if self._moved(old, after.get(name))]
        if not suspects or self._code is None:
            return
        for kind, name in _accesses(self._code, self._at):
            if name not in suspects:
                continue
            if kind == "LOAD":
                raise CompileError(
                    f"the body of a dynamic loop uses {name} and then gives this name another "
                    f"{(kind := _kind(after[name]))}; the body is recorded once, so every round "
                    f"would use the {kind} of before the loop. Let rounds hand on values in one "
                    "tensor: allocate it before the loop and write to it inside, with "
                    f"{'nisa.scalar_store' if kind == 'scalar' else f'dst={name}'}",
                    location=trace.locations.text(self.loop.location),
                    core=trace.core,
                    code="loop-carries-name",
                )
            suspects.remove(name)

    def _moved(self, old: Any, new: Any) -> bool:
        if isinstance(old, NkiScalar) and isinstance(new, NkiScalar):
            return new is not old
        if not (isinstance(old, NkiTensor) and isinstance(new, NkiTensor)):
            return False
        return new.storage is not old.storage and old.storage in self.touched


def _kind(value: Any) -> str:
    return "scalar" if isinstance(value, NkiScalar) else "tensor"


def refuse_ended(trace: Any, storage: Storage) -> NoReturn:
    """Raise the error for a tensor of a body that is used after the loop."""
    where = trace.locations.text(trace.ended[storage.number]) or "unknown line"
    raise CompileError(
        f"{storage.label} was made inside the dynamic loop at {where} and is used after it; if the "
        "loop doesn't run, nobody makes it. Allocate it before the loop and write to it inside",
        code="loop-made-inside",
    )


def _captured(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of enclosing functions that a function uses."""
    found = {}
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars, cells):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _accesses(code: CodeType, at: int) -> Iterator[tuple[str, str]]:
    """("LOAD" | "STORE", name) of a body's accesses to variables, in the order of the code.

    The statement's test or FOR_ITER is at offset `at`; the body ends where that jumps to, `for`
    when it is exhausted, `while` when its condition is false. All of the code with `at` -1. Where
    no such jump is found, nothing is yielded.
    """
    end: int | None = None
    instructions = list(dis.get_instructions(code))
    # Python 3.12 says of a frame that waits for a generator that it is behind the FOR_ITER, in the
    # memory that the interpreter keeps for it.
    at = max((i.offset for i in instructions if i.offset <= at), default=at)
    for i in instructions:
        if i.offset < at:
            continue
        if at < 0 or (end is not None and i.offset < end):
            names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
            yield from zip(_ACCESS.findall(i.opname), names)
        elif end is not None:
            return
        elif i.opname == "FOR_ITER" or "JUMP" in i.opname:
            end = i.argval
        elif i.offset > at:  # a test takes at most one instruction before it jumps
            return
