"""In which order simulated time takes a program: as AWS's compiler is taken to, or as written."""

from __future__ import annotations

import reprlib
from typing import Any, Final

from nki_dist.errors import LaunchError

COMPILED: Final = "compiled"
PROGRAM: Final = "program"
SCHEDULES: Final = (COMPILED, PROGRAM)


def check_schedule(schedule: Any, location: str | None = None) -> str:
    """The schedule, if there is such a one.

    Args:
        location: `file:line` that asks for it, if known.

    Raises:
        LaunchError: there isn't.
    """
    if isinstance(schedule, str) and schedule in SCHEDULES:
        return schedule
    raise LaunchError(
        f"schedule={reprlib.repr(schedule)}; allowed: 'compiled' (time as AWS's compiler orders a "
        "kernel) and 'program' (in the order written); a kernel's own argument of that name is "
        "given by position",
        location=location,
        code="profile-schedule",
    )
