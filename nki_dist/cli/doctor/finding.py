"""A line of what `nki-dist doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass


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
