"""A program for `harms`: a world on Ray, one of whose processes the supervisor kills or stops.

`python -m tests.faults.harmed DESCRIPTOR WHEN TIMEOUT RETRIES [idle]`; WHEN is "between" or
"during" launches, and with "idle" a worker of Ray idles. It says when it may be harmed, and what
each launch afterwards came to.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable

import nki_dist as nki
from nki_dist.errors import RetryWarning, UnresponsiveWarning
from tests.faults.interrupted import attempted, told
from tests.faults.supervised import Voice
from tests.faults.worlds import RANKS, launch, launch_long, verdict_of

UNDER_WAY = 2.5  # seconds of the launch that is harmed, were it not
SAMPLE = 400  # rounds


def main(descriptor: str, when: str, timeout: str, retries: str, idle: str = "") -> None:
    voice = Voice(int(descriptor))
    warnings.simplefilter("ignore", RetryWarning)
    warnings.simplefilter("ignore", UnresponsiveWarning)

    def made() -> nki.World:
        seconds = float(timeout) or None
        return nki.World(ranks=RANKS, host="ray", timeout=seconds, retries=int(retries))

    def step(name: str, act: Callable[[], None]) -> None:
        voice.say(step=f"{name} begins")
        error, seconds = attempted(act)
        voice.say(step=name, verdict=verdict_of(error), seconds=seconds, text=told(error))

    def anew() -> None:
        with made() as another:
            launch(another)

    world = made()
    begun = time.monotonic()
    launch(world)
    start = time.monotonic() - begun
    launch_long(world, 3)
    if idle:  # worlds leave no worker idle, tasks of the program's own do
        import ray  # which isn't imported before the package does so

        ray.get(ray.remote(lambda: None).remote())
    samples = [attempted(lambda: launch_long(world, SAMPLE))[1] for _ in range(3)]
    rounds = int(SAMPLE * UNDER_WAY / min(samples))
    actors = [pid for pid, _ in world.host.processes]  # type: ignore[attr-defined]
    voice.say(step="ready", actors=actors, start=start)
    if when == "during":
        step("under way", lambda: launch_long(world, rounds))
    else:
        sys.stdin.readline()  # until it is harmed
    step("same", lambda: launch(world))
    step("new", anew)
    step("same again", lambda: launch(world))
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
