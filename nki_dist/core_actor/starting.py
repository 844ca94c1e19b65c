"""Waiting for the processes of a world to come up: shown on a terminal, and not for ever.

What can go wrong is outside: a node that is frozen or short of memory, a runtime environment that
can't be made, a limit of processes. Ray tries again without end and tells nobody, so the wait is
bounded: not in all, as hundreds of processes may take minutes, but from one to the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import ray
import ray.exceptions

from nki_dist.core_actor import authentication
from nki_dist.core_actor.local_ray import local_ray
from nki_dist.core_actor.looking import refusal
from nki_dist.core_actor.nodes import constructing, socket_folders
from nki_dist.core_actor.ray_start import slow_starts
from nki_dist.core_actor.watchdog import STOPPED
from nki_dist.errors import LaunchError
from nki_dist.hbm.nodes import here
from nki_dist.isa.core import CoreSlot
from nki_dist.runtime.progress import START_QUIET, Progress
from nki_dist.runtime.settings import START_VARIABLE, start_timeout

LOOK_EVERY: Final = 0.1  # seconds
SHOWN: Final = 4  # processes that a message lists


def await_start(
    first_calls: Sequence[Any],
    packs: Sequence[Sequence[CoreSlot]],
    nodes: Sequence[str],
    check: Callable[[], None] = lambda: None,
    judge: Callable[[Collection[Any]], None] = lambda _: None,
) -> list[Any]:
    """What all processes answer to their first calls.

    A node that can't run them, or mustn't, is final at once; else all are waited for.

    Args:
        first_calls: a future of each process.
        packs: its cores.
        nodes: its Ray node.
        check: raises if there is no Ray session any more.
        judge: looks at the answers that have come, each time that some do, and may raise.

    Raises:
        LaunchError: for so many seconds none has come up, and some are missing; a node can't run
            them, or has other versions.
        RayError: of a process that has died, perhaps with its node.
    """
    limit = start_timeout()
    cores = {future: len(pack) for future, pack in zip(first_calls, packs)}
    progress = Progress(sum(cores.values()), quiet=START_QUIET)
    slow_starts().starting()
    waiting, last, begun = list(first_calls), time.monotonic(), 0
    of = dict(zip(first_calls, nodes))
    answers: dict[Any, Any] = {}
    failed: list[Exception] = []
    try:
        while waiting:
            check()
            up, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_EVERY)
            if up:
                last = time.monotonic()
                for future in up:
                    try:
                        answers[future] = ray.get(future)
                    except Exception as error:  # unpickling may fail in any way
                        if final := refusal(error, of[future]):
                            raise final from error
                        failed.append(error)
                judge(answers.values())
            elif time.monotonic() - last > limit and (now := constructing()) > begun:
                begun, last = now, time.monotonic()  # on a busy machine, one by one
            elif time.monotonic() - last > limit:
                missing = [n for n, future in enumerate(first_calls) if future in waiting]
                raise _not_started(limit, missing, packs, nodes)
            elif time.monotonic() - last > STOPPED:
                local_ray().end_stopped_idlers()  # which fails their calls
            progress.up(progress.cores - sum(cores[future] for future in waiting))
    finally:
        progress.close()
        local_ray().note()
    if failed:
        raise failed[0]
    return [answers[future] for future in first_calls]


def refused(error: ray.exceptions.RaySystemError) -> LaunchError:
    """The error where Ray takes no processes of this program."""
    return LaunchError(
        f"Ray takes no processes of this program: {str(error).strip().rstrip('.')}; "
        f"{authentication.to_join()}. raylet.out and gcs_server.out say more ({_logs()})",
        code="core-not-started",
    )


def _not_started(
    limit: float, missing: Sequence[int], packs: Sequence[Sequence[CoreSlot]], nodes: Sequence[str]
) -> LaunchError:
    lines = []
    for n in missing[:SHOWN]:
        ends = dict.fromkeys(core.title for core in (packs[n][0], packs[n][-1]))
        lines.append(f"{' to '.join(ends)} on Ray node {nodes[n]}")
    if len(missing) > SHOWN:
        lines.append(f"{len(missing) - SHOWN:,} more")
    return LaunchError(
        f"{len(missing):,} of {len(packs):,} processes of this world haven't started, and for "
        f"{limit:g} s none has come up; waiting for\n  - " + "\n  - ".join(lines) + "\n  "
        f"{_resources()}. Without actor_options simulated cores don't wait for other jobs "
        "to give some back: look at load and memory of these nodes, and at raylet.out in the logs "
        f"of Ray's session ({_logs()}). {START_VARIABLE}=SECONDS waits longer, cores_per_actor= "
        'makes fewer processes, host="inprocess" needs none',
        code="core-not-started",
        numbers={"missing": len(missing), "most": len(packs), "seconds": limit},
    )


def _resources() -> str:
    try:
        total, free = ray.cluster_resources(), ray.available_resources()
    except ray.exceptions.RayError:
        return "The cluster doesn't say what it has"
    has, left = total.get("CPU", 0), free.get("CPU", 0)
    return f"The cluster has {has:g} processors, {left:g} of them free"


def _logs() -> str:
    return f"{os.path.dirname(socket_folders()[here()])}/logs by default"
