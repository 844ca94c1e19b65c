"""Who uses the Ray session of this process, and leaving one that is lost.

Leaving ends what Ray keeps in this process, under the feet of any thread that is calling it; so
launches say while they use Ray, and a lost session is left once nobody does. Ray's own thread
leaves it, as it does what starts one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import ray

from nki_dist.core_actor import parent_watched
from nki_dist.core_actor.local_ray import local_ray
from nki_dist.core_actor.watchdog import SessionLost, Watchdog
from nki_dist.errors import CoreLostError, LaunchError
from nki_dist.forks import once
from nki_dist.runtime.ray_thread import ray_thread

LEAVING: Final = 30.0  # seconds after which nobody waits any more for a lost session to be left
LOOK_EVERY: Final = 0.5  # seconds


class Use:
    """See the module's docstring; for any thread, which is in it once at most."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: set[int] = set()  # threads by number
        self._lost = self._leaving = False
        self._holders: list[object] = []

    def enter(self) -> None:
        with self._changed:
            self._users.add(threading.get_ident())

    def exit(self) -> None:
        with self._changed:
            self._users.discard(threading.get_ident())
            self._leave_if_unused()

    def lose(self, holder: object = None) -> None:
        """The session is lost: it is left as soon as nobody uses it.

        Args:
            holder: of objects of the store; lives until then, or Ray would end the program.
        """
        with self._changed:
            self._lost = True
            self._holders.append(holder)
            self._leave_if_unused()

    def wait_until_left(self) -> None:
        """Return when there is no lost session any more.

        Raises:
            LaunchError: Ray would end the program, or leaving doesn't come to an end.
        """
        end = time.monotonic() + LEAVING
        with self._changed:
            # An interrupt may have kept this thread from saying that it is out.
            self._users.discard(threading.get_ident())
            while self._lost:
                if parent_watched():
                    raise LaunchError(
                        "the Ray session of this program is lost, and Ray ends a program that "
                        "leaves such a session if its parent is process 1 and it imported ray "
                        "before nki_dist: import nki_dist first, or use nki.simulate / "
                        "host='inprocess' from here on",
                        code="ray-lost",
                    )
                self._leave_if_unused()
                if not self._changed.wait_for(lambda: not self._lost, LOOK_EVERY):
                    self._give_up_after(end)

    def _give_up_after(self, end: float) -> None:
        if time.monotonic() < end:
            return
        why = (
            "Ray doesn't come to an end in this process, as it doesn't while a process of it is "
            "stopped (SIGSTOP)"
            if self._leaving
            else f"{len(self._users)} threads of it still wait for Ray"
        )
        raise LaunchError(
            f"the Ray session of this program is lost, and for {LEAVING:g} s it couldn't be left: "
            f"{why}. Start the program again, or use nki.simulate / host='inprocess' from here on",
            code="ray-lost",
            numbers={"seconds": LEAVING},
        )

    def _leave_if_unused(self) -> None:
        if not self._lost or self._leaving or parent_watched():
            return
        self._users &= {thread.ident for thread in threading.enumerate()}
        if not self._users:
            self._leaving = True
            ray_thread().begin(self._leave)

    def _leave(self) -> None:
        try:
            local_ray().end()
            ray.shutdown()  # of one that was joined
        finally:
            with self._changed:
                self._lost = self._leaving = False
                self._holders.clear()
                self._changed.notify_all()


@once
def ray_use() -> Use:
    """The one of this process, as a process is in one session."""
    return Use()


@contextmanager
def using_ray() -> Iterator[None]:
    """While a thread calls Ray, so that no other makes the process leave its session."""
    use = ray_use()
    try:
        use.enter()
        yield
    finally:
        use.exit()


class Joined:
    """A world's stay in the Ray session that its processes are in.

    Args:
        watchdog: of the session that this process is in now.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self._name: tuple[str, str] | None = _session()

    def there(self) -> bool:
        """Whether this process is still in it, lost or not."""
        return ray.is_initialized() and self._name == _session()

    def lose(self, holder: object) -> None:
        """It is lost; `holder` as in `Use.lose`."""
        if self.there():
            ray_use().lose(holder)

    def over(self) -> None:
        """Nobody asks for it any more."""
        self._name = None
        self.watchdog.close()

    @contextmanager
    def used(self, lost: Callable[[], None]) -> Iterator[None]:
        """While Ray is used: whatever fails because the session is gone is a CoreLostError.

        Args:
            lost: called before that is raised.
        """
        with using_ray():
            try:
                if not self.there():  # Ray would start another one at the next call
                    raise SessionLost("another world found it lost and left it")
                yield
            except Exception as error:
                is_loss = isinstance(error, SessionLost)
                text = str(error) if is_loss else self.watchdog.lost(now_too=True)
                if text is None:
                    raise
                lost()
                raise CoreLostError(
                    f"Ray lost this process: {text}, and with it all simulated cores. The next "
                    "launch starts Ray again, or joins the cluster again if the world has an "
                    "address"
                ) from error


def _session() -> tuple[str, str]:
    """Names the Ray session this process is in, its job and its node: actors and objects of another
    one are gone. A program that leaves a cluster and joins it again is another job of it."""
    context = ray.get_runtime_context()
    return context.get_job_id(), context.get_node_id()
