"""Whether a launch over several actors can still go on, from what they say of themselves.

A deadlock is certain when two looks in a row see all actors parked or done, with the same counts,
every message that was sent also arrived, and no parked actor with a message it hasn't looked at:
then nothing is on its way and nothing can change any more. Once two cores disagree the others have
SETTLES seconds to come to such a rest. Doesn't ask anybody; see `RayHost`.
"""

from __future__ import annotations

import math
import time

from nki_dist.core_actor.orders import Status
from nki_dist.errors import NkiError
from nki_dist.runtime.deadlock import SETTLES, deadlock
from nki_dist.runtime.overdue import overdue


class Watch:
    """Decides from successive looks whether a launch can still go on."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = math.inf if timeout is None else timeout
        self._deadline = time.monotonic() + self._timeout
        self._before: list[Status] | None = None
        self._settled = math.inf

    def verdict(self, number: int, statuses: list[Status]) -> NkiError | None:
        parked = [s for s in statuses if s.state == "parked"]
        quiet = all(s.launch == number and s.state in ("parked", "done") for s in statuses)
        quiet = quiet and bool(parked)
        quiet = quiet and all(s.taken == s.arrived for s in parked)
        quiet = quiet and sum(s.sent for s in statuses) == sum(s.arrived for s in statuses)
        same = quiet and statuses == self._before
        self._before = statuses
        waits = [w for s in statuses for w in s.waits]
        disagree = any(w.met is not None for w in waits)
        if math.isinf(self._settled) and disagree:
            self._settled = time.monotonic() + SETTLES
        if same or (disagree and time.monotonic() > self._settled):
            return deadlock(waits, [c for s in statuses for c in s.finished if s.launch == number])
        if time.monotonic() > self._deadline:
            return overdue(self._timeout, [p for s in statuses for p in s.running], waits)
        return None
