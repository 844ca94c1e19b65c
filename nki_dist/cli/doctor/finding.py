"""A line of what `nki-dist doctor` reports, and what is said of machines and nodes alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30
FILES: Final = 4096  # open at once; Ray's processes hold dozens for each other process
STORE_ON_DISK: Final = "mount a tmpfs there; without it Ray's object store lies on disk and is slow"


@dataclass(frozen=True)
class Finding:
    """One line of the report; `level` is "ok", "warn" or "FAIL", `node` a title if it is of one."""

    level: str
    subject: str
    found: str
    fix: str = ""
    node: str = ""

    def __str__(self) -> str:
        below = self.node and self.subject != "node"
        subject = f"  {self.subject}" if below else self.subject
        line = f"{self.level:<4}  {subject:<16} {self.found}"
        return line + (f"\n      -> {self.fix}" if self.fix else "")


def check_files(files: int) -> Finding:
    """How many files a process may open; negative for any number."""
    found = "unlimited or unknown" if files < 0 else f"{files} for a process"
    if 0 <= files < FILES:
        fix = f"large worlds need more: `ulimit -n {FILES}` where Ray is started"
        return Finding("warn", "open files", found, fix)
    return Finding("ok", "open files", found)
