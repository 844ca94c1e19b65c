"""A line of what `nki-dist doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One line of the report; `level` is "ok", "warn" or "FAIL"."""

    level: str
    subject: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<4}  {self.subject:<16} {self.found}"
        return line + (f"\n      -> {self.fix}" if self.fix else "")
