"""Processes of this machine by number: whether one is stopped, and killing one for certain.

A stopped process takes no calls, so Ray can't ask it to end; a signal does. Numbers are used again,
so a process is known by its number and when it started.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process of this machine; `started` is in clock ticks since boot, None if unknown."""

    pid: int
    started: int | None

    @classmethod
    def of(cls, pid: int) -> Process:
        fields = _stat(pid)
        return cls(pid, int(fields[19]) if fields else None)

    def _found(self) -> list[str]:
        fields = _stat(self.pid)
        return fields if fields and int(fields[19]) == self.started else []

    def command(self) -> str:
        """Its command line, as far as one is known."""
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace")
        except OSError:
            return ""

    def there(self) -> bool:
        """Whether it hasn't ended."""
        fields = self._found()
        return bool(fields) and fields[0] not in "ZX"

    def stopped(self) -> bool:
        """Whether it is stopped by a signal or a debugger."""
        fields = self._found()
        return bool(fields) and fields[0] in ("T", "t")

    def kill(self) -> None:
        """End it, if it is still there."""
        if self._found():
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(self.pid, signal.SIGKILL)


def by_parent() -> dict[int, list[Process]]:
    """All processes, by the number of their parent."""
    found: dict[int, list[Process]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if fields := _stat(int(pid)):
            found.setdefault(int(fields[1]), []).append(Process(int(pid), int(fields[19])))
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on, which is the third."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name, in parentheses, may have anything in it
