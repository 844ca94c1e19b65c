"""The kernel's source beside its time: the functions whose lines a launch executed.

Read when the page is made, through `linecache`, so cells of notebooks are found too. Doesn't see
whether a file changed since the kernel was compiled; a file that can't be read is listed by its
lines alone.
"""

from __future__ import annotations

import ast
import linecache
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

CONTEXT = 2  # lines shown around what is in no function


@dataclass(frozen=True)
class Listing:
    """Part of a file.

    Attributes:
        parts: stretches of lines: (number of the first, texts).
        critical_us, total_us: by line number.
    """

    file: str
    parts: list[tuple[int, list[str]]]
    critical_us: Mapping[int, float]
    total_us: Mapping[int, float]

    @property
    def name(self) -> str:
        return PurePath(self.file).name


def listings(lines: Sequence[Mapping[str, Any]]) -> list[Listing]:
    """The files of a profile's lines, the one with most critical time first.

    Args:
        lines: `Profile.lines` as dicts.
    """
    files: dict[str, tuple[defaultdict[int, float], defaultdict[int, float]]] = {}
    for line in lines:
        file, _, number = line["location"].rpartition(":")
        if number.isdigit():
            critical, total = files.setdefault(file, (defaultdict(float), defaultdict(float)))
            critical[int(number)] += line["critical_us"]
            total[int(number)] += line["total_us"]
    found = []
    for file, (critical, total) in files.items():
        text = [t.rstrip("\n") for t in linecache.getlines(file)]
        found.append(Listing(file, _parts(text, total), critical, total))
    return sorted(found, key=lambda x: (-sum(x.critical_us.values()), x.file))


def _parts(text: Sequence[str], used: Collection[int]) -> list[tuple[int, list[str]]]:
    """Stretches of a file that hold the lines used: whole functions where they are in one."""
    if not text:
        return []
    functions = _functions("\n".join(text))
    shown: set[int] = set()
    for number in used:
        enclosing = [f for f in functions if f[0] <= number <= f[1]]
        # The innermost: a function defined in another is shown alone.
        first, last = max(enclosing, default=(number - CONTEXT, number + CONTEXT))
        shown.update(range(max(1, first), min(len(text), last) + 1))
    parts: list[tuple[int, list[str]]] = []
    for number in sorted(shown):
        if parts and parts[-1][0] + len(parts[-1][1]) == number:
            parts[-1][1].append(text[number - 1])
        else:
            parts.append((number, [text[number - 1]]))
    return parts


def _functions(text: str) -> list[tuple[int, int]]:
    """First and last lines of all functions, decorators included."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a cell with commands of its notebook, for one
        return []
    return [
        (min([n.lineno, *(d.lineno for d in n.decorator_list)]), n.end_lineno or n.lineno)
        for n in ast.walk(tree)
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
