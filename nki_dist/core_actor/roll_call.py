"""Asking all processes of a launch where they stand, and knowing who doesn't answer.

A round asks everybody and is over when all have answered; the next begins after that, so two
rounds are two looks as `Watch` needs them. A process that dies voids the round. One that is frozen
never answers, and so is one that computes for long without letting other threads run: both are
silent, and who waits decides for how long that is borne.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import ray

from nki_dist.core_actor.lost import LOST
from nki_dist.core_actor.orders import Status

LOOK_EVERY: Final = 0.1  # seconds between looks at actors that don't finish, at first
GRACE: Final = 3.0  # seconds to stop in, once a launch has failed


class RollCall:
    """The rounds of one launch.

    Args:
        actors: of all processes, None for those given up; looked at when a round begins.
    """

    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors
        self._asked: dict[int, Any] = {}
        self._answers: dict[int, Status] = {}
        self._since = 0.0
        self.last: dict[int, Status] = {}

    def look(self, patience: float) -> list[Status] | None:
        """Everybody's status, if the round is over within so many seconds."""
        if not self._asked:
            self._since = time.monotonic()
            self._answers = {}
            self._asked = {
                n: a.status.remote() for n, a in enumerate(self._actors) if a is not None
            }
        open_ = list(self._asked.values())
        ready, _ = ray.wait(open_, num_returns=len(open_), timeout=patience)
        for n, future in list(self._asked.items()):
            if future in ready:
                try:
                    self._answers[n] = self.last[n] = ray.get(future)
                except LOST:
                    self._asked = {}  # its own answer tells of the death
                    return None
                del self._asked[n]
        return None if self._asked else list(self._answers.values())

    def silent(self) -> dict[int, float]:
        """Who hasn't answered for how many seconds."""
        passed = time.monotonic() - self._since
        return dict.fromkeys(self._asked, passed)

    def forget(self, n: int) -> None:
        """A process was given up."""
        self._asked.pop(n, None)
