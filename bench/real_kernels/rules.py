"""Which rules of refusal traced kernels come to at all: one that none comes to isn't contradicted.

Every rule of `tests/refusals` has a kernel that breaks it. Running it shows where its refusal is
made; the condition that stands around that line, for that instruction, is where a kernel is judged
by the rule. `Watch` looks on, while kernels are traced, which of these lines are executed.

It errs in one direction: several rules that share a condition are taken for met together.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest import mock

import nki_dist
from nki_dist import errors
from nki_dist.isa import tracing
from nki_dist.isa.spec import Spec

PACKAGE = str(Path(nki_dist.__file__).parent)
AROUND = (ast.If, ast.While, ast.IfExp, ast.Match, ast.Assert)
RAISERS = (errors.__file__, tracing.__file__)


class Place(NamedTuple):
    """Where kernels are judged by a rule: a condition's line, for one instruction ("" for all)."""

    file: str
    line: int
    opcode: str


@cache
def places() -> dict[str, tuple[str, Place]]:
    """The code and place of each rule, by its name; kernels are compiled once in a process."""
    from tests.refusals.page import rules

    found = {}
    for rule in rules():
        made: list[tuple[Any, list[tuple[str, int, Any]]]] = []
        with _noting(made), contextlib.suppress(errors.NkiError):
            rule.run(bad=True)
        for diagnostic, frames in made:
            if rule.message in str(diagnostic):
                found[rule.name] = (diagnostic.code, _place(frames))
                break
    return found


@contextlib.contextmanager
def _noting(made: list[tuple[Any, list[tuple[str, int, Any]]]]) -> Iterator[None]:
    """Keep every diagnostic that is made, with the frames that led to it, the innermost first."""
    init = errors.Diagnostic.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        frames = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(PACKAGE) and file not in RAISERS:
                spec = frame.f_locals.get("self")
                opcode = spec.name if isinstance(spec, Spec) else ""
                frames.append((file, frame.f_lineno, opcode))
            frame = frame.f_back
        made.append((self, frames))

    with mock.patch.object(errors.Diagnostic, "__init__", noted):
        yield


def _place(frames: list[tuple[str, int, str]]) -> Place:
    opcode = next((opcode for _, _, opcode in frames if opcode), "")
    for file, line, _ in frames:
        if (guard := _guards(file).get(line)) is not None:
            return Place(file, guard, opcode)
    return Place(*frames[0][:2], opcode)


@cache
def _guards(file: str) -> dict[int, int]:
    """The line of the innermost condition around each line of a file that has one."""
    found: dict[int, int] = {}

    def visit(node: ast.AST, guard: int | None) -> None:
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            guard = None
        for child in ast.iter_child_nodes(node):
            inner = guard
            if isinstance(node, AROUND) and child is not getattr(node, "test", None):
                inner = getattr(node, "test", node).lineno
            line = getattr(child, "lineno", None)
            if line is not None and inner is not None:
                for each in range(line, (child.end_lineno or line) + 1):
                    found[each] = inner
            visit(child, inner)

    visit(ast.parse(Path(file).read_text()), None)
    return found


class Watch:
    """Sees which places are come to, in every thread; `met` holds them."""

    def __init__(self, wanted: Iterator[Place] | list[Place]) -> None:
        self.met: set[Place] = set()
        self._lines: dict[str, dict[int, set[str]]] = {}
        for place in wanted:
            self._lines.setdefault(place.file, {}).setdefault(place.line, set()).add(place.opcode)
        self._codes: dict[CodeType, dict[int, set[str]] | None] = {}

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        try:
            lines = self._codes[code]
        except KeyError:
            known = self._lines.get(code.co_filename, {})
            own = {line for _, _, line in code.co_lines() if line}
            lines = {line: known[line] for line in own & known.keys()} or None
            self._codes[code] = lines
        return None if lines is None else self._line

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        lines = self._codes[frame.f_code]
        if lines and event == "line" and (wanted := lines.get(frame.f_lineno)):
            place = (frame.f_code.co_filename, frame.f_lineno)
            missing = {o for o in wanted if Place(*place, o) not in self.met}
            if missing:
                opcode = _opcode(frame) if missing != {""} else ""
                for each in missing & {opcode, ""}:
                    self.met.add(Place(*place, each))
            if not missing:
                frame.f_trace_lines = False
        return self._line


def _opcode(frame: FrameType | None) -> str:
    """The instruction that a frame works for."""
    while frame is not None:
        if frame.f_code in (Spec.__call__.__code__, Spec.verify.__code__):
            return str(frame.f_locals["self"].name)
        frame = frame.f_back
    return ""
