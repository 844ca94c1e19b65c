"""A program's side of the kept Ray: joining it, and borrowing actors for a world.

Whatever is wrong with it, the program goes on with a Ray of its own, and a ClusterWarning says so:
it must never make a program worse off than it was without. A program that names a cluster isn't
given this one.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any, Final

import ray

from nki_dist.core_actor import authentication
from nki_dist.core_actor.fingerprint import differences, facts
from nki_dist.core_actor.pool import place
from nki_dist.core_actor.pool.place import NAMESPACE
from nki_dist.core_actor.ray_start import replacing
from nki_dist.errors import ClusterWarning, LaunchError
from nki_dist.runtime.settings import CLUSTER_VARIABLE, uses_pool

_OFF: Final = f"{CLUSTER_VARIABLE}=off doesn't look for one"


def join(store: int | None) -> bool:
    """Join the kept Ray of this user, if there is one that fits; whether it was joined.

    Args:
        store: bytes of the object store that the program asks for, or None.

    Raises:
        LaunchError: NKI_DIST_CLUSTER isn't a word that there is.
    """
    if not uses_pool():
        return False
    try:
        status = place.status()
        if status is None:
            return False
    except place.Stale as error:
        return _unused(
            f"the keeper of {error} has ended without clearing up: it was killed, or the machine "
            "was switched off. `nki-dist cluster start` starts another, `nki-dist cluster stop` "
            "removes what is left"
        )
    except place.Silent as error:
        return _unused(f"the keeper doesn't answer ({error}); `nki-dist cluster status` says more")
    except (LaunchError, OSError) as error:
        return _unused(getattr(error, "message", str(error)))
    if why := _unfit(status, store):
        return _unused(why)
    return _joined(status)


def _unfit(status: dict[str, Any], store: int | None) -> str | None:
    """Why a program can't use it."""
    found = differences(status.get("facts", {}), facts())
    if store is not None and store != status.get("store"):
        theirs = status.get("store") or "Ray's default"
        found.append(f"bytes of the object store: {theirs} there, {store} here")
    mode = os.environ.get(authentication.MODE)
    if mode is not None and (mode.lower() == "token") != bool(status.get("token")):
        found.append(f"{authentication.MODE}: another there, {mode} here")
    if not found:
        return None
    return (
        "it isn't like this program:\n  - " + "\n  - ".join(found) + "\n  `nki-dist cluster stop` "
        "and `start` in the program's environment make it so"
    )


def _joined(status: dict[str, Any]) -> bool:
    address = status["address"]
    try:
        if status["token"]:
            authentication.send_token()
        with replacing("ray-loopback"):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises no narrower type
        return _unused(f"Ray at {address} can't be joined: {error}")
    return True


def _unused(why: str) -> bool:
    """False, and a warning that says why."""
    warnings.warn(
        ClusterWarning(f"the kept Ray isn't used, this program starts its own: {why}; {_OFF}"),
        stacklevel=2,
    )
    return False


class Loan:
    """Actors that a world has borrowed, until `close`.

    Args:
        count: how many it could use.
    """

    def __init__(self, count: int) -> None:
        self._line: place.Line | None = None
        self._names: list[str] = []
        if not uses_pool():
            return
        try:
            line = place.connect()
            if line is None:
                return
            self._line = line
            here = ray.get_runtime_context().gcs_address
            status = line.ask(want="status")
            if status.get("address") == here and not differences(status["facts"], facts()):
                self._names = list(line.ask(want="actors", count=count).get("actors", []))
        except (place.Stale, place.Silent, LaunchError, OSError) as error:
            if self._line is not None:  # else `join` has said so, or another Ray is used
                said = getattr(error, "message", str(error))
                warnings.warn(
                    ClusterWarning(
                        f"the kept Ray lends no actors ({said}), this world starts its own; "
                        "`nki-dist cluster status` says more"
                    ),
                    stacklevel=2,
                )
            self.close()
        else:
            if not self._names:
                self.close()

    def take(self) -> Any:
        """One of them, or None if there is none left."""
        while self._names:
            try:
                return ray.get_actor(self._names.pop(0), namespace=NAMESPACE)
            except ValueError:  # it has just died
                continue
        return None

    def close(self) -> None:
        """Give back what was borrowed, which ends it. Idempotent."""
        line, self._line, self._names = self._line, None, []
        if line is not None:
            line.close()
