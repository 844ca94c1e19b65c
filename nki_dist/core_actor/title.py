"""Who a simulated core's process is and what it runs, for those who look at it from outside.

`ray list actors --detail`, the dashboard and the prefix of its log have the actor's `repr`; `ps`,
`top` and `ray stack` have the title of its process, with the kernel that runs or ran last. Neither
is a name that Ray knows, because Ray makes time series of its metrics for each name.

It makes them for each first argument of a process's command line as well, and a title that Ray
sets, at the start and the end of every call, is one argument as a whole. So a title of ours is
written to where Linux looks for the arguments, as two: `ray::NeuronCore` and who it is; and
Ray's function for it does nothing from then on. Where either can't be done (known of
Ray 2.60), processes have Ray's titles.

Each launch is an event of Ray's timeline, in the row of the process with the world's first core: a
process may take all its orders from one actor call, so calls don't show them. Ray keeps the last
1,000 events of a call. It has no public way to add one; where `CoreWorker.profile_event` (known of
Ray 2.60) is missing there are none, nor in a Ray that collects no events, as one of our own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final

import ray
import ray._raylet

from nki_dist.core_actor.nodes import private
from nki_dist.isa.core import CoreSlot
from nki_dist.ranges import named
from nki_dist.tricks import uses

FIRST: Final = "ray::NeuronCore"  # as Ray has it; tools find processes of actors by `ray::`
ARGUMENTS: Final = slice(45, 47)  # start and end, of what follows the name in /proc/PID/stat

EVENT: Final = b"launch"
EVENTS_VARIABLE: Final = "RAY_task_events_report_interval_ms"


class Title:
    """Of this process, which simulates these cores of a world; Ray's while there are none."""

    def __init__(self, cores: Sequence[CoreSlot], world: str) -> None:
        self.who = who(cores, world) if cores else "of no world yet"
        self._kernel = ""
        raylet: Any = ray._raylet
        self._ours = bool(cores) and hasattr(raylet, "setproctitle") and _write(FIRST, self.who)
        if self._ours:
            raylet.setproctitle = _set_nothing
        self._about = {"world": world}
        self._text = b""  # of events
        self._nothing = nullcontext()
        self._worker = _worker() if cores and cores[0].core == 0 else None

    def launch(self, kernel: str) -> AbstractContextManager[Any]:
        """While it runs this kernel; costs next to nothing if it is the one that ran last."""
        if kernel != self._kernel:
            self._kernel = kernel
            if self._ours:
                _write(FIRST, f"{self.who}, kernel {kernel}")
            self._text = json.dumps({"name": kernel, **self._about}).encode()
        if self._worker is None:
            return self._nothing
        event: AbstractContextManager[Any] = self._worker.profile_event(EVENT, self._text)
        return event


def who(cores: Sequence[CoreSlot], world: str) -> str:
    """Cores of a world in a few words: "rank 3, core 1 of world 3fa2c1"."""
    ranks = named(c.rank for c in cores)
    several = len({c.rank for c in cores}) > 1  # then these ranks are whole
    mine = ranks if several else f"{ranks}, {named((c.lnc_core for c in cores), 'core')}"
    return f"{mine} of world {world}"


def _write(*arguments: str) -> bool:
    """Have these as the arguments of this process, as far as there is room; whether that worked."""
    if not uses("titles"):
        return False
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


def _worker() -> Any:
    """What takes events of this process, if there is somebody."""
    if os.environ.get(EVENTS_VARIABLE) == "0":  # of the node's, which its processes have
        return None
    found = private("worker.global_worker.core_worker")
    return found if hasattr(found, "profile_event") else None


def _set_nothing(_: str) -> None:
    """Instead of setting a title."""
