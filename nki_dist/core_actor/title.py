"""Who a simulated core's process is, for those who look at it from outside.

`ray list actors --detail`, the dashboard and the prefix of its log have the actor's `repr`; `ps`,
`top` and `ray stack` have the title of its process, with the kernel that runs or ran last. Neither
is a name that Ray knows: it makes time series of its metrics for each name of an actor, and for
the first word of each title, which is therefore the same for all.

Ray sets a title at the start and the end of every call. A process of ours has one that says more,
so Ray's function for it does nothing there. A Ray that has no such function (known of 2.60) keeps
its own titles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import ray

from nki_dist.isa.core import CoreSlot
from nki_dist.ranges import named

FIRST: Final = "ray::NeuronCore"  # as Ray has it; tools find processes of actors by `ray::`


class Title:
    """Of this process, which simulates these cores of a world; Ray's while there are none."""

    def __init__(self, cores: Sequence[CoreSlot], world: str) -> None:
        self.who = who(cores, world) if cores else "of no world yet"
        self._kernel = ""
        self._set = _taken() if cores else _left_alone
        self._set(f"{FIRST} {self.who}")

    def runs(self, kernel: str) -> None:
        """It runs this kernel; costs nothing if it is the one that ran last."""
        if kernel != self._kernel:
            self._kernel = kernel
            self._set(f"{FIRST} {self.who}, kernel {kernel}")


def who(cores: Sequence[CoreSlot], world: str) -> str:
    """Cores of a world in a few words: "rank 3, core 1 of world 3fa2c1"."""
    ranks = named(c.rank for c in cores)
    several = len({c.rank for c in cores}) > 1  # then these ranks are whole
    mine = ranks if several else f"{ranks}, {named((c.lnc_core for c in cores), 'core')}"
    return f"{mine} of world {world}"


def _taken() -> Callable[[str], Any]:
    """Ray's function that sets the title of this process, which Ray itself finds no more."""
    raylet: Any = getattr(ray, "_raylet", None)
    found = getattr(raylet, "setproctitle", None)
    if not callable(found):
        return _left_alone
    raylet.setproctitle = _left_alone
    return found  # type: ignore[no-any-return]


def _left_alone(_: str) -> None:
    """Instead of setting a title."""
