"""Ray's warning that a node starts many processes, once for each start and not dozens of times.

A raylet gives it again for every few processes more, to each program of the cluster, whether or
not it shows logs: 44 lines for 128 processes on 2 processors. Ray has no setting for it, hence
this: the function with which it prints what raylets say is asked through another that lets by the
first such line after the start of a world, and all other lines. Known of Ray 2.54 to 2.60; where
Ray has no such function, it prints what it likes.
"""

from __future__ import annotations

from typing import Any, Final

from nki_dist.core_actor.ray_parts import ray_part
from nki_dist.forks import once
from nki_dist.tricks import uses

PRINTS: Final = "print_to_stdstream"
ABOUT: Final = "worker processes have been started on node"


class SlowStarts:
    """What is printed in this process."""

    def __init__(self) -> None:
        self._told = False
        worker = ray_part("ray._private.worker")
        self._print = getattr(worker, PRINTS, None)
        if callable(self._print) and uses("ray-warnings"):
            setattr(worker, PRINTS, self._printed)

    def starting(self) -> None:
        """Processes of a world start: one warning does."""
        self._told = False

    def _printed(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        assert self._print is not None
        lines = data.get("lines", ()) if isinstance(data, dict) else ()
        if any(ABOUT in str(line) for line in lines):
            if self._told:
                return None
            self._told = True
        return self._print(data, *args, **kwargs)


@once
def slow_starts() -> SlowStarts:
    """Those of this process."""
    return SlowStarts()
