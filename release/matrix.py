"""`make matrix`: the fast tests on every Python, with the lowest and the highest dependencies.

    python -m release.matrix [--rows NAME,...] [--folder DIR] [TESTS ...]

Each row is a clean environment that the wheel is installed into (`release/clean.py`). It takes the
time of the fast tests for each of them, one after the other, which is why CI doesn't. The table is
printed at the end and kept in DIR/matrix.md, with pytest's output of each row beside it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release.clean import Clean
from release.dist import ROOT, UV, build


@dataclass(frozen=True)
class Row:
    """An environment.

    Attributes:
        python: its version.
        lowest: it has the lowest versions that the wheel allows, not the highest.
        extras: of the wheel, beside `test`.
    """

    python: str
    lowest: bool = False
    extras: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        parts = [self.python, "lowest" if self.lowest else "highest", *self.extras]
        return "-".join(parts)


# Where a lowest version has no wheel for a Python, uv takes the first that has one: nothing is
# built from source, so that a row is the same on machines with and without a compiler.
ROWS: Final = (
    Row("3.10"),
    Row("3.11", extras=("torch", "jax", "mcp")),
    Row("3.12"),
    Row("3.13"),
    Row("3.10", lowest=True),
    Row("3.11", lowest=True, extras=("torch", "jax", "mcp")),
    Row("3.12", lowest=True),
    Row("3.13", lowest=True),
)


def try_row(row: Row, source: Path, wheel: Path, kept: Path, tests: Sequence[str]) -> list[str]:
    """The cells of a row's line: name, versions, what pytest said."""
    with tempfile.TemporaryDirectory(prefix="nki_dist_clean_") as folder:
        clean = Clean(Path(folder).resolve(), UV)
        try:
            clean.install(row.python, wheel, ["test", *row.extras], row.lowest)
            clean.unpack(source)
        except subprocess.CalledProcessError as error:
            return [row.name, "", f"FAILED: {' '.join(map(str, error.cmd[:3]))} ..."]
        status, said = clean.test(tests)
        shutil.copy(clean.log, kept / f"{row.name}.txt")
    versions = ", ".join(f"{name} {version}" for name, version in clean.packages.items())
    return [f"{row.name} ({clean.version})", versions, ("" if not status else "FAILED: ") + said]


def main(argv: Sequence[str]) -> int:
    """Try the rows, and print the table."""
    parser = argparse.ArgumentParser("python -m release.matrix", description=__doc__)
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix")
    arguments, tests = parser.parse_known_args(argv)
    wanted = arguments.rows.split(",")
    unknown = set(wanted) - {row.name for row in ROWS}
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}; rows: {parser.get_default('rows')}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    source, wheel = build(arguments.folder)
    table = [["environment", "versions", "fast tests"], ["---"] * 3]
    for row in (row for row in ROWS if row.name in wanted):
        table.append(try_row(row, source, wheel, arguments.folder, tests))
        print(" | ".join(table[-1]), flush=True)
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in table)
    (arguments.folder / "matrix.md").write_text(f"{text}\n", encoding="utf-8")
    print(f"\n{text}")
    return 1 if any(cells[2].startswith("FAILED") for cells in table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
