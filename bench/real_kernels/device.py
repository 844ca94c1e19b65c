"""`python -m bench.real_kernels device FILE...`: errors here beside those made on a device.

kda-for-trainium records, for its candidates, the relative L2 error that a trn2 made against
NKIBench's references on the inputs of seed 42, under names that changed as it grew. FILE has the
rows of `nkibench --candidates CHECKOUT --seed 42`. What is printed are both errors, and what is
left of the device's when the one here is taken from it, as independent errors are: by squares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from bench.harness import table as markdown

# Of an offline simulation or a forecast, in the same records.
NOT_OF_A_DEVICE: Final = (
    "offline",
    "pred",
    "gate",
    "danger",
    "layout_check",
    "backed_out",
    "delta",
    "floor",
)


def figures(record: Any, path: str = "") -> Iterator[float]:
    """Every relative L2 error of a device in one candidate's record."""
    if isinstance(record, dict):
        for name, value in record.items():
            yield from figures(value, f"{path}/{name}")
    elif isinstance(record, float | int) and "rel_l2" in path:
        if any(word in path for word in NOT_OF_A_DEVICE):
            return
        yield float(record)


def of_devices(checkout: Path) -> dict[str, float]:
    """The error of each candidate that has one: "problem/file" without its ending.

    The greatest of the seeds', which are all of the same inputs.
    """
    found: dict[str, float] = {}
    for file in sorted(checkout.glob("workspaces/*/candidates.jsonl")):
        for line in filter(str.strip, file.read_text().splitlines()):
            record = json.loads(line)
            candidate = str(record.get("candidate") or "")
            errors = list(figures(record))
            if errors and candidate.endswith(".py") and "offline" not in candidate:
                found[f"{file.parent.name}/{Path(candidate).stem}"] = max(errors)
    return found


def table(rows: list[dict[str, Any]], checkout: Path) -> str:
    """Markdown of the kernels that have both errors."""
    devices = of_devices(checkout)
    found = []
    for row in sorted(rows, key=lambda row: row["test"]):
        if row["test"] in devices and "error" in row:
            theirs, ours = devices[row["test"]], row["error"]
            left = math.sqrt(max(theirs**2 - ours**2, 0.0))
            figures = (f"{theirs:.3e}", f"{ours:.3e}", f"{left:.1e}")
            found.append((row["test"], *figures, f"{100 * row['equal']:.1f} %"))
    columns = ("kernel", "on trn2", "here", "left over", "equal bits here")
    return "\n".join(markdown(columns, found))
