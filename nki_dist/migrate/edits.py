"""A program's text, and replacements of parts of it; what isn't replaced stays as it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, NamedTuple


class Edit(NamedTuple):
    """Text in the place of some bytes."""

    start: int
    end: int
    new: str


class Source:
    """A program as text and tree. Places are bytes of UTF-8, as `ast` counts them.

    Attributes:
        tree: of the text as it was given.
        edits: what is replaced; of two that overlap, the one that begins first is carried out.
    """

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self.data = text.encode()
        self.lines = [0, *(found.end() for found in re.finditer(rb"\r\n?|\n", self.data))]
        self.newline = "\r\n" if b"\r\n" in self.data else "\n"
        self.edits: list[Edit] = []
        self._gone: set[int] = set()  # ids of statements
        self._blocks = {
            id(statement): block
            for parent in ast.walk(self.tree)
            for block in vars(parent).values()
            if isinstance(block, list) and not isinstance(parent, ast.Module)
            for statement in block
        }

    def start(self, node: Any) -> int:
        """Where a node begins."""
        return int(self.lines[node.lineno - 1] + node.col_offset)

    def end(self, node: Any) -> int:
        """Where a node ends."""
        return int(self.lines[node.end_lineno - 1] + node.end_col_offset)

    def between(self, start: int, end: int) -> str:
        """Some of the text."""
        return self.data[start:end].decode()

    def line(self, number: int) -> str:
        """A line, counted from 1, with its end."""
        return self.between(self.lines[number - 1], self.after(number))

    def after(self, number: Any) -> int:
        """Where a line ends, counted from 1."""
        return self.lines[number] if number < len(self.lines) else len(self.data)

    def indent(self, node: Any) -> str | None:
        """What is before a node in its line; None if that is more than blanks."""
        before = self.between(self.lines[node.lineno - 1], self.start(node))
        return None if before.strip() else before

    def replace(self, node: Any, new: str) -> None:
        """Put text in the place of a node."""
        self.edits.append(Edit(self.start(node), self.end(node), new))

    def above(self, node: Any) -> int:
        """The number of the first of the comments and blank lines above a statement."""
        first, margin = int(node.lineno), len(self.indent(node) or "")
        while first > 1:
            text = self.line(first - 1)
            inside = len(text) - len(text.lstrip()) > margin and text.strip()
            if inside or (text.strip() and not text.lstrip().startswith("#")):
                break
            first -= 1
        return first

    def without(self, node: Any) -> Edit:
        """A statement's lines go, and blank ones above it; comments above it stay.

        Where others are in its line, or none is left of its block, it becomes `pass`.
        """
        self._gone.add(id(node))
        block = self._blocks.get(id(node), [ast.Pass()])
        rest = self.between(self.end(node), self.after(node.end_lineno)).partition("#")[0]
        shared = self.indent(node) is None or rest.strip()
        if shared or all(id(statement) in self._gone for statement in block):
            return Edit(self.start(node), self.end(node), "pass")
        first = self.above(node)
        above = [self.line(n) for n in range(first, node.lineno)]
        kept = "".join(text for text in above if text.strip())
        return Edit(self.lines[first - 1], self.after(node.end_lineno), kept)

    def rewritten(self, node: Any, lines: Sequence[str]) -> Edit:
        """Other statements in the place of one; none for an empty sequence."""
        if not lines:
            return self.without(node)
        between = self.newline + (self.indent(node) or "")
        text = between.join("\n".join(lines).splitlines())
        return Edit(self.start(node), self.end(node), text)

    def text(self) -> str:
        """The program with everything replaced."""
        parts, at = [], 0
        for edit in sorted(self.edits, key=lambda e: (e.start, -e.end)):
            if edit.start >= at:
                parts += [self.data[at : edit.start], edit.new.encode()]
                at = edit.end
        return b"".join([*parts, self.data[at:]]).decode()
