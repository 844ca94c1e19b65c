"""The code of the pages: what a page's blocks print, and whether the page says so.

A page is README, CONTRIBUTING, CHANGELOG or one of `docs`. Its ```python blocks are executed in
order, in one namespace. Each is a file of its own, named like the page, so that line 1 is the first
of the block. Marks:

    ```python no-run          isn't executed
    ```python needs=P         executed if package P is installed, with the output blocks after it
    ```python as=NAME.py      what the block's file is called
    ```python file=P          of a recipe: written to P in a copy of the repository
    ```diff file=P            of a recipe: changes P there; `...` is what a line has in that place
    ```sh recipe              of a recipe: what is carried out there
    ```text output            what the block before printed, but for the folders of Python files
    ```text excerpt           beginnings of lines that it printed, in this order, figures included
    ```text excerpt varies    the same but for the figures: they are of this machine or its packages

`python -m tests.pages [PAGE ...]` (`make excerpts`) writes outputs and excerpts anew.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TOP = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT, EXCERPT, VARIES = ("text", "output"), ("text", "excerpt"), ("text", "excerpt", "varies")
# An excerpt may stop anywhere but inside a word or a figure.
GOES_ON = re.compile(r"\w|[.,]\d")


class Block(NamedTuple):
    """A fenced block: its marks, its text, and where the text lies in the page."""

    marks: tuple[str, ...]
    text: str
    span: tuple[int, int]

    def mark(self, kind: str) -> list[str]:
        start = f"{kind}="
        return [m.removeprefix(start) for m in self.marks if m.startswith(start)]


def blocks(page: Path) -> list[Block]:
    found = FENCE.finditer(page.read_text())
    return [Block(tuple(m[1].split()), m[2], m.span(2)) for m in found]


def runnable(block: Block) -> bool:
    others = [m for m in block.marks[1:] if not m.startswith(("needs=", "as="))]
    return block.marks[:1] == ("python",) and not others


def missing(block: Block) -> set[str]:
    """Packages that the block needs and this environment doesn't have."""
    return {name for name in block.mark("needs") if importlib.util.find_spec(name) is None}


class Told(NamedTuple):
    """An output or excerpt, and what the block before it printed."""

    block: Block
    printed: str


def run(page: Path, scene: Path) -> tuple[list[Told], set[str]]:
    """Execute a page in the empty folder `scene`; what it tells, and the packages that lacked."""
    names: dict[str, Any] = {"__name__": page.stem}
    told: list[Told] = []
    printed: str | None = ""
    absent: set[str] = set()
    for number, block in enumerate(blocks(page)):
        if runnable(block):
            absent |= missing(block)
            (name,) = block.mark("as") or [f"{page.stem}.py"]
            file = scene / f"block{number}" / name
            printed = None if missing(block) else _execute(block, file, names)
        elif printed is not None and block.marks in (OUTPUT, EXCERPT, VARIES):
            told.append(Told(block, printed))
    return told, absent


def _execute(block: Block, file: Path, names: dict[str, Any]) -> str:
    file.parent.mkdir(parents=True)
    file.write_text(block.text)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(block.text, str(file), "exec"), names)
    return output.getvalue()


def located(text: str) -> str:
    """The text without the folders of Python files, which are those of the moment."""
    lines = re.sub(r"[^\s(\"']*/(?=[^\s/]+\.py\b)", "", text).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def stale(told: Told) -> str:
    """The first thing that the page says and the block didn't print; empty if there is none."""
    block, printed = told.block, located(told.printed)
    if block.marks == OUTPUT:
        same = located(block.text) == printed
        return "" if same else f"the page says\n{block.text}\nit prints\n{printed}"
    plain = _without_figures if block.marks == VARIES else str
    lines = iter(printed.splitlines())
    for wanted in block.text.splitlines():
        if not any(_begins(plain(line), plain(wanted)) for line in lines):
            return f"not printed, or not in this order: {wanted!r} in\n{printed}"
    return ""


def _begins(line: str, wanted: str) -> bool:
    inside = wanted[-1:].isalnum() and GOES_ON.match(line[len(wanted) :])
    return line.startswith(wanted) and not inside


def _without_figures(text: str) -> str:
    return " ".join(re.sub(r"\d+([.,]\d+)*(e[+-]\d+)?", "N", text).split())


def renewed(told: Told) -> tuple[str, list[str]]:
    """What the page should say, and lines of an excerpt that nothing printed resembles.

    A line of an excerpt becomes the printed line that differs from it in figures only, as far as
    it went; if there are several, the one with most words in common, or else the first.
    """
    block, printed = told.block, located(told.printed)
    if block.marks == OUTPUT:
        return printed + "\n", []
    left = dict(enumerate(printed.splitlines()))
    found: dict[int, str] = {}
    lost = []
    for wanted in block.text.splitlines():
        number = _most_similar(left, wanted)
        if number is None:
            lost.append(wanted)
        else:
            found[number] = _as_far(left.pop(number), wanted)
    kept = [found[number] for number in sorted(found)]
    return "".join(f"{line}\n" for line in kept), lost


def _most_similar(lines: dict[int, str], wanted: str) -> int | None:
    plain, words = _without_figures(wanted), wanted.split()

    def common(number: int) -> int:
        return sum(a == b for a, b in zip(lines[number].split(), words, strict=False))

    fits = [n for n, line in lines.items() if _begins(_without_figures(line), plain)]
    return max(fits, key=common, default=None)  # the first of equals


def _as_far(line: str, wanted: str) -> str:
    """The beginning of `line` that has as many words as `wanted`, and no more of the last one."""
    words = re.findall(r"\s*\S+", line)[: len(wanted.split())]
    whole, part = (_without_figures(text) for text in ("".join(words), wanted))
    return "".join(words)[: len("".join(words)) - (len(whole) - len(part))]


def write(page: Path, tellings: list[Told]) -> list[str]:
    """Write what the blocks printed into the page; what has to be written by hand."""
    content, by_hand = page.read_text(), []
    for told in reversed(tellings):
        text, lost = renewed(told)
        by_hand += [f"nothing printed resembles this line of {page.name}: {line}" for line in lost]
        if not lost and stale(told):
            start, stop = told.block.span
            content = content[:start] + text + content[stop:]
    page.write_text(content)
    return by_hand


def _wanted(arguments: list[str]) -> Iterator[str]:
    """pytest's arguments: the pages named, by any part of their names, or all."""
    yield from ("-q", "-m", "slow or not slow", "--write-pages", "tests/test_docs.py", "-k")
    yield "blocks_run" + (f" and ({' or '.join(arguments)})" if arguments else "")


if __name__ == "__main__":
    import pytest

    sys.exit(pytest.main(list(_wanted(sys.argv[1:]))))
