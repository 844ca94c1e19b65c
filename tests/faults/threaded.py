"""A program for `threads`: everything that worlds do, from threads that end soon.

`python -m tests.faults.threaded DESCRIPTOR HOST FIRST`; FIRST says where the first launch is made,
which starts Ray: in a "thread" that ends then, or in "main". All else is the same in both.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nki_dist as nki
from nki_dist.errors import LaunchError
from tests.faults.interrupted import attempted, told
from tests.faults.supervised import Voice
from tests.faults.worlds import RANKS, Wrong, launch, launch_long, verdict_of

TIMES = 30
WORLDS = 3
LONG = 2000  # rounds


def in_thread(act: Callable[[], Any]) -> Any:
    """What it returns or raises, in a thread of its own that ends."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


class Threaded:
    """The steps, in order; each returns seconds that may be compared, None if they needn't be."""

    def __init__(self, host: str, first: str) -> None:
        self.host, self.first = host, first
        self.world = self.made()

    def made(self) -> nki.World:
        return nki.World(ranks=RANKS, host=self.host)

    def first_launch(self) -> None:
        """Starts Ray."""
        if self.first == "thread":
            in_thread(lambda: launch(self.world))
        else:
            launch(self.world)
        time.sleep(0.5)  # what follows a thread has noticed its end

    def warm(self) -> float:
        """Launches of the main thread."""
        return _fastest(lambda: launch(self.world), TIMES)

    def long(self) -> float:
        """Long launches of the main thread."""
        return _fastest(lambda: launch_long(self.world, LONG), 3)

    def a_thread_each(self) -> float:
        return _fastest(lambda: in_thread(lambda: launch(self.world)), TIMES)

    def a_pool(self) -> float:
        """Launches of one world from three threads at once."""
        begun = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda _: launch(self.world), range(TIMES)))
        return (time.monotonic() - begun) / TIMES

    def new_worlds(self) -> float:
        return _fastest(self._anew, WORLDS)

    def new_worlds_in_threads(self) -> float:
        return _fastest(lambda: in_thread(self._anew), WORLDS)

    def worlds_at_once(self) -> None:
        """Each in a thread."""
        with ThreadPoolExecutor(WORLDS) as pool:
            list(pool.map(lambda _: self._anew(), range(WORLDS)))

    def made_in_one_used_in_another(self) -> None:
        world = in_thread(self.made)
        in_thread(world.start)
        launch(world)
        in_thread(lambda: launch_long(world, 3))
        in_thread(world.close)

    def closed_elsewhere(self) -> None:
        """And then a launch from a third thread is refused, and the next world works."""
        thread = threading.Thread(target=self.world.close)
        thread.start()
        thread.join()
        try:
            in_thread(lambda: launch(self.world))
        except LaunchError:
            self.world = self.made()
            launch(self.world)
        else:
            raise Wrong("a closed world launches")

    def ends(self) -> None:
        in_thread(self.world.close)

    def _anew(self) -> None:
        with self.made() as world:
            launch(world)


STEPS: tuple[Callable[[Threaded], float | None], ...] = (
    Threaded.first_launch,
    Threaded.warm,
    Threaded.long,
    Threaded.a_thread_each,
    Threaded.a_pool,
    Threaded.new_worlds,
    Threaded.new_worlds_in_threads,
    Threaded.worlds_at_once,
    Threaded.made_in_one_used_in_another,
    Threaded.closed_elsewhere,
    Threaded.ends,
)


def _fastest(act: Callable[[], Any], times: int) -> float:
    found = []
    for _ in range(times):
        begun = time.monotonic()
        act()
        found.append(time.monotonic() - begun)
    return min(found)


def main(descriptor: str, host: str, first: str) -> None:
    voice, threaded = Voice(int(descriptor)), Threaded(host, first)
    for step in STEPS:
        compared: list[float | None] = []
        error, seconds = attempted(lambda: compared.append(step(threaded)))  # noqa: B023
        voice.say(
            step=step.__name__.replace("_", " "),
            verdict=verdict_of(error),
            seconds=seconds,
            compared=compared[0] if compared else None,
            text=told(error),
        )
    voice.say(step="over")


if __name__ == "__main__":
    main(*sys.argv[1:])
