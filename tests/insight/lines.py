"""Finding lines of a test's own kernels: those below a comment like `# LINE name`."""

from __future__ import annotations

import re
from pathlib import Path

_MARK = re.compile(r"^ *# LINE (\w+)$")


def lines_of(file: str) -> dict[str, str]:
    """`file:line`, as messages have it, of every marked line."""
    text = Path(file).read_text().split("\n")
    marks = ((n, _MARK.search(line)) for n, line in enumerate(text, 1))
    return {mark[1]: f"{file}:{n + 1}" for n, mark in marks if mark}
