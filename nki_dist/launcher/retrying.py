"""Running a launch again that lost a process, a node or its Ray session (`World(retries=)`).

Programs are deterministic, every launch begins with cores as at power-on, and the callers' arrays,
also those that a kernel writes, are changed only when all of a launch has succeeded. So a launch
that was lost has left nothing behind but what it printed, and running it again gives the same bits.
Prints are held until it is known which attempt counts.

Only losses are run again. Whatever a kernel does wrong, it would do wrong again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from nki_dist.errors import CoreLostError, LaunchError, RetryWarning
from nki_dist.runtime.hosts import Attempt, Launch, LaunchResult

Printed: TypeAlias = "list[tuple[int, str, np.ndarray]]"


def launch_again(begin: Callable[[], Attempt], launch: Launch, retries: int) -> LaunchResult:
    """The result of the first attempt that isn't lost, with the losses before it.

    Args:
        begin: prepares an attempt, once what was lost is replaced; what it raises ends them.
        retries: attempts after the first, 1 or more.

    Raises:
        CoreLostError: all attempts were lost; says how many there were.
        LaunchError: what is left can't run the launch.
    """
    losses: list[CoreLostError] = []
    while True:
        printed: Printed = []

        def hold(core: int, prefix: str, array: np.ndarray, to: Printed = printed) -> None:
            to.append((core, prefix, array))

        attempt = begin()
        try:
            result = attempt(replace(launch, printer=hold))
            result.losses = losses
            return result
        except CoreLostError as error:
            losses.append(error)
            if len(losses) <= retries:
                printed.clear()
                launch.warn(_again(error, len(losses), retries))
                continue
            error.message += (
                f"\n  The launch was tried {len(losses)} times and lost each time "
                f"(World(retries={retries}))"
            )
            raise
        except LaunchError as error:
            if losses:
                raise error from losses[-1]
            raise
        finally:
            for core, prefix, array in printed:
                launch.printer(core, prefix, array)


def _again(error: CoreLostError, lost: int, retries: int) -> RetryWarning:
    return RetryWarning(
        f"a launch is run again, retry {lost} of {retries}, because {error.message}",
        location=error.location,
        core=error.core,
    )
