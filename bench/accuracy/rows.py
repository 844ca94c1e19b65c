"""Measured rows: reading `bench/data`, what is judged, and what the figures of a row may be.

`bench/data/README.md` explains fields and flags.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

DATA: Final = Path(__file__).parents[1] / "data"
FIRST: Final = "first set"  # library.tsv
PUBLIC: Final = "public set"  # public.tsv
# Flags that keep a row of the first set from being judged; in att nothing better exists than l, r.
_DOUBTFUL: Final = frozenset("redlat")
_TOLERATED: Final = MappingProxyType({"att": frozenset("rl")})
DAMAGED: Final = "b"
WRONG: Final = "f"
ONE_CORE: Final = "o"
TWO_CORES: Final = "x"


@dataclass(frozen=True)
class Row:
    """One measured launch.

    Attributes:
        set: FIRST or PUBLIC.
        family: of kernels of one source that resemble each other.
        problem: rows with the same one compute the same; "" where there are no variants.
        platform, lnc: what it ran on.
        config: the first set's parameters of a launch.
        kernel, inputs: the public set's file and function, and the name of its inputs.
    """

    id: str
    set: str
    measured_us: float
    flags: frozenset[str]
    platform: str
    lnc: int
    config: dict[str, Any] = field(default_factory=dict)
    kernel: str = ""
    inputs: str = ""

    @property
    def family(self) -> str:
        return self.id.split("-")[0] if self.set == FIRST else self.id.split("/")[0]

    @property
    def problem(self) -> str:
        return self.id.rpartition("/")[0]

    @property
    def runs(self) -> bool:
        """Whether there is something to run."""
        return DAMAGED not in self.flags

    @property
    def judged(self) -> bool:
        """Whether its figure is good enough to judge by."""
        if self.set == PUBLIC:
            return not self.flags & {DAMAGED, WRONG}
        return not (self.flags & _DOUBTFUL) - _TOLERATED.get(self.family, frozenset())


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"T": True, "F": False}.get(text, text)


def _read(path: Path) -> Iterable[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def all_rows(data: Path = DATA) -> list[Row]:
    """Every row, in the order of the files."""
    rows = []
    for line in _read(data / "library.tsv"):
        pairs = (pair.partition("=") for pair in line["configuration"].split())
        config = {key: _value(value) for key, _, value in pairs}
        rows.append(Row(*_common(line, FIRST), int(line["lnc"]), config))
    for line in _read(data / "public.tsv"):
        common = _common(line, PUBLIC)
        rows.append(Row(*common, 1, kernel=line["kernel"], inputs=line["inputs"]))
    return rows


def _common(line: dict[str, str], kind: str) -> tuple[str, str, float, frozenset[str], str]:
    flags = frozenset(line["flags"].strip("-"))
    return line["id"], kind, float(line["measured_us"]), flags, line["platform"]


def chosen(rows: Iterable[Row], families: Sequence[str] = (), id_part: str = "") -> list[Row]:
    """Rows to run: the judged ones, of some families or all."""
    return [
        row
        for row in rows
        if row.judged and (not families or row.family in families) and id_part in row.id
    ]


@dataclass(frozen=True)
class Result:
    """What the model says of a row.

    Attributes:
        device_us: simulated time on the device; 0 where the row couldn't be run.
        overhead_us, assumed_us, critical, beta1: as of `Profile`.
        instructions: executed.
        line: the kernel line with most of the critical path.
        seconds: it took to estimate.
        error: why it couldn't be run.
    """

    id: str
    device_us: float = 0.0
    overhead_us: float = 0.0
    assumed_us: float = 0.0
    critical: dict[str, float] = field(default_factory=dict)
    beta1: bool = False
    instructions: int = 0
    line: str = ""
    seconds: float = 0.0
    error: str = ""


def read_results(path: Path) -> dict[str, Result]:
    """Results by row id; none where there is no file."""
    if not path.exists():
        return {}
    lines = path.read_text().splitlines()
    return {r.id: r for r in (Result(**json.loads(line)) for line in lines)}


def write_results(path: Path, results: dict[str, Result], rows: Sequence[Row]) -> None:
    """One line each, in the order of the rows."""
    found = [results[row.id] for row in rows if row.id in results]
    path.write_text("".join(json.dumps(r.__dict__) + "\n" for r in found))
