"""Who a simulated core's process is, for those who look at it from outside.

`ray list actors --detail`, the dashboard and the prefix of its log have the actor's `repr`; `ps`,
`top` and `ray stack` have the title of its process, with the kernel that runs or ran last. Neither
is a name that Ray knows, because Ray makes time series of its metrics for each name.

It makes them for each first argument of a process's command line as well, and a title that Ray
sets, at the start and the end of every call, is one argument as a whole. So a title of ours is
written to where Linux looks for the arguments, as several: `ray::NeuronCore`, who it is, and the
kernel; and Ray's function for it does nothing from then on. Where either can't be done (known of
Ray 2.60), processes have Ray's titles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ray

from nki_dist.isa.core import CoreSlot
from nki_dist.ranges import named

FIRST: Final = "ray::NeuronCore"  # as Ray has it; tools find processes of actors by `ray::`
ARGUMENTS: Final = slice(45, 47)  # start and end, of what follows the name in /proc/PID/stat


class Title:
    """Of this process, which simulates these cores of a world; Ray's while there are none."""

    def __init__(self, cores: Sequence[CoreSlot], world: str) -> None:
        self.who = who(cores, world) if cores else "of no world yet"
        self._kernel = ""
        self._ours = bool(cores) and hasattr(_raylet(), "setproctitle") and _write(FIRST, self.who)
        if self._ours:
            _raylet().setproctitle = _set_nothing

    def runs(self, kernel: str) -> None:
        """It runs this kernel; costs nothing if it is the one that ran last."""
        if kernel != self._kernel:
            self._kernel = kernel
            if self._ours:
                _write(FIRST, self.who, f"kernel {kernel}")


def who(cores: Sequence[CoreSlot], world: str) -> str:
    """Cores of a world in a few words: "rank 3, core 1 of world 3fa2c1"."""
    ranks = named(c.rank for c in cores)
    several = len({c.rank for c in cores}) > 1  # then these ranks are whole
    mine = ranks if several else f"{ranks}, {named((c.lnc_core for c in cores), 'core')}"
    return f"{mine} of world {world}"


def _write(*arguments: str) -> bool:
    """Have these as the arguments of this process, as far as there is room; whether that worked."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = map(int, fields[ARGUMENTS])
        text = "\0".join(arguments).encode(errors="replace")[: end - start - 1]
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(text.ljust(end - start, b"\0"))
    except (OSError, ValueError):
        return False
    return True


def _raylet() -> Any:
    return getattr(ray, "_raylet", None)


def _set_nothing(_: str) -> None:
    """Instead of setting a title."""
