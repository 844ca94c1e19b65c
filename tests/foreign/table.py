"""`constructs.txt`: what published kernels consist of, found by tracing them, and our test of each.

A line is a construct (`constructs`), the source line of the first kernel that has it, and the test
of ours that has it, too, with tabs between them. `tests/foreign` stands for the tests beside this
file, which take their rows from it. To make it anew:

    pytest -p bench.real_kernels.covering --covering-to COVER tests --ignore tests/foreign
    python -m bench.real_kernels foreign NKI_REF --write COVER
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).parent / "constructs.txt"
HERE = "tests/foreign"


class Row(NamedTuple):
    """Of the table.

    Attributes:
        where: `repository/path:line`, or "" where the construct has no line.
        test: of ours.
    """

    construct: str
    where: str
    test: str


def rows() -> list[Row]:
    """The whole table."""
    if not FILE.exists():
        return []
    return [Row(*line.split("\t")) for line in FILE.read_text().splitlines()]


def own() -> list[str]:
    """The constructs that the tests beside this file have to have."""
    return [row.construct for row in rows() if row.test == HERE]


def write(found: Mapping[str, str], covered: Mapping[str, str]) -> None:
    """Make the table of constructs, each with its line, and of what other tests have.

    Python's syntax is always for the tests here, which also ask that nothing is warned of.
    """
    lines = []
    for text, where in sorted(found.items()):
        test = HERE if "python: " in text else covered.get(text, HERE)
        lines.append(f"{text}\t{where}\t{test}\n")
    FILE.write_text("".join(lines))
