"""`constructs.txt`: what published kernels consist of, a line each: construct, tab, source line.

`make foreign FOREIGN=--write` makes it anew; nobody edits it.
"""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "constructs.txt"


def read() -> dict[str, str]:
    """Construct -> `repository/path:line` of the first kernel that has it, "" where none is known."""
    rows = (line.split("\t") for line in FILE.read_text().splitlines())
    return {construct: where for construct, where in rows}


def write(found: dict[str, str]) -> None:
    FILE.write_text("".join(f"{text}\t{where}\n" for text, where in sorted(found.items())))
