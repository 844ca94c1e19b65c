"""Telling `while register:` from every other Python question about a register's truth.

Python asks `bool(register)` for `if`, `and`, `not`, `assert`, comprehensions and `while` alike.
Only `while` has a meaning here, so the source of the asking line is parsed and the node whose test
is being evaluated is looked up. Without source (or before Python 3.11, where bytecode has no
columns) the line alone decides.
"""

from __future__ import annotations

import ast
import inspect
from types import CodeType, FrameType

from nki_dist.errors import CompileError


class LoopFinder:
    """Finds the `while` statement a frame is testing; keeps parsed sources."""

    def __init__(self) -> None:
        self._loops: dict[str, list[ast.While]] = {}

    def _while_nodes(self, code: CodeType) -> list[ast.While]:
        """All of the file: a function's lines alone don't always parse (text at column 0)."""
        nodes = self._loops.get(code.co_filename)
        if nodes is None:
            try:
                lines, _ = inspect.findsource(code)
                tree = ast.parse("".join(lines))
            except (OSError, TypeError, SyntaxError):
                raise CompileError(
                    f"`while register:` in {code.co_name} needs the source text of "
                    f"{code.co_filename} to be understood, and it can't be found or parsed; use "
                    "nl.while_loop instead",
                    code="source-needed",
                ) from None
            nodes = [n for n in ast.walk(tree) if isinstance(n, ast.While)]
            self._loops[code.co_filename] = nodes
        return nodes

    def testing(self, frame: FrameType) -> int | None:
        """Line of the `while` whose bare test `frame` is evaluating, or None for anything else."""
        line = frame.f_lineno
        for node in self._while_nodes(frame.f_code):
            test = node.test
            if not isinstance(test, (ast.Name, ast.Attribute, ast.Subscript)):
                continue
            if test.lineno <= line <= (test.end_lineno or test.lineno) and not (
                node.body[0].lineno == line and self._in_body(frame, node)
            ):
                return node.lineno
        return None

    def _in_body(self, frame: FrameType, node: ast.While) -> bool:
        """Whether the instruction belongs to the body of a one-line `while`."""
        positions = getattr(frame.f_code, "co_positions", None)
        if positions is None:
            return False
        where = list(positions())[frame.f_lasti // 2]
        column = where[2]
        return column is not None and column >= node.body[0].col_offset
