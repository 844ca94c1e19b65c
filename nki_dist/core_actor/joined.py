"""A world's stay in the Ray session that its processes are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

from nki_dist.core_actor.ray_session import ray_session
from nki_dist.core_actor.ray_use import ray_use, using_ray
from nki_dist.core_actor.watchdog import SessionLost, Watchdog
from nki_dist.errors import CoreLostError


class Joined:
    """See the module's docstring.

    Args:
        watchdog: of the session that this process is in now.
    """

    def __init__(self, watchdog: Watchdog) -> None:
        self.watchdog = watchdog
        self._name: tuple[str, str] | None = ray_session()

    def there(self) -> bool:
        """Whether this process is still in it, lost or not."""
        return ray.is_initialized() and self._name == ray_session()

    def lose(self, kept: object) -> None:
        """It is lost; `kept` as in `Use.lose`."""
        if self.there():
            ray_use().lose(kept)

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
                known = isinstance(error, SessionLost)
                text = str(error) if known else self.watchdog.lost(now_too=True)
                if text is None:
                    raise
                lost()
                raise CoreLostError(
                    f"Ray lost this process: {text}, and with it all simulated cores. The next "
                    "launch starts Ray again, or joins the cluster again if the world has an "
                    "address"
                ) from error
