"""The Ray session this process launches in: started or joined once, and not usable after a fork."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
from functools import lru_cache
from typing import Any

import ray

from nki_dist.core_actor import authentication
from nki_dist.errors import LaunchError
from nki_dist.runtime.progress import ticking

STORE_VARIABLE = "NKI_DIST_OBJECT_STORE_BYTES"
ADDRESS_VARIABLE = "RAY_ADDRESS"
FOLDER_VARIABLE = "RAY_TMPDIR"
LEAST_DISK = 4 << 20  # bytes; a session that does nothing writes about a tenth of it
ANSWER_SECONDS = 10.0  # to answer a connection; Ray itself asks for minutes


def ensure_ray(address: str | None, home: int | None = None) -> None:
    """Start a local Ray, or join the cluster at `address`, unless this process is in one.

    Args:
        home: the process that launches kernels; this one if None.

    Raises:
        LaunchError: there is none, it doesn't start, or the address or the object store's size
            isn't one.
    """
    refuse_fork(os.getpid() if home is None else home)
    with _starting():  # the worlds of two threads may both be the first
        if not ray.is_initialized():
            _start_or_join(address)


@lru_cache(maxsize=1)
def _starting() -> threading.Lock:
    """Held by who starts or joins a Ray: a process can do that once."""
    return threading.Lock()


def _start_or_join(address: str | None) -> None:
    options: dict[str, Any] = {}
    address = address or os.environ.get(ADDRESS_VARIABLE) or "local"
    _check_address(address)
    if address == "local":  # not "auto": somebody else's cluster on this machine isn't ours
        store = os.environ.get(STORE_VARIABLE)
        if store is not None:
            if not store.isdigit():
                raise LaunchError(
                    f"{STORE_VARIABLE}={store!r}; must be a number of bytes", code="setting-value"
                )
            options["object_store_memory"] = int(store)
        options["include_dashboard"] = False
        _require_disk()
    own = address == "local"
    try:
        with ticking("starting Ray" if own else f"joining the Ray cluster at {address}"):
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises no narrower type where its processes don't come up
        raise _not_up(address, error) from error


def _not_up(address: str, error: Exception) -> LaunchError:
    """What Ray's error means, and what to do."""
    said = str(error)
    if authentication.is_about_tokens(error):
        said = said.split(". ")[0]  # the rest is advice that may not fit
    said = said.rstrip(".")
    if address != "local" and (
        isinstance(error, ConnectionError) or authentication.is_about_tokens(error)
    ):
        return LaunchError(
            f"can't join the Ray cluster at {address!r}: {said}. The port must be that of `ray "
            f"start --head`; {authentication.to_join()}. docs/clusters.md has a section on tokens",
            code="ray-join",
        )
    advice = authentication.to_start(error) or f"`nki-dist doctor` looks for reasons{_load()}"
    return LaunchError(
        f"Ray didn't start on this machine: {said}; {advice}. "
        'host="inprocess" (NKI_DIST_HOST=inprocess) needs no Ray',
        code="ray-start",
    )


def _load() -> str:
    """What else keeps this machine busy: Ray gives its own processes half a minute to start."""
    ready, processors = os.getloadavg()[0], os.cpu_count() or 1
    return f", and {ready:.0f} processes share {processors} processors" * (ready > 2 * processors)


def _require_disk() -> None:
    """Refuse a full disk at once; Ray would wait half a minute for files that can't be written."""
    folder = os.environ.get(FOLDER_VARIABLE) or os.environ.get("TMPDIR") or "/tmp"
    try:
        left = shutil.disk_usage(folder).free
    except OSError:
        return  # Ray makes it, or says what is wrong with it
    if left < LEAST_DISK:
        raise LaunchError(
            f"Ray can't start on this machine: {folder}, where it keeps logs and sockets, has "
            f"{left:,} bytes left; remove files that nobody needs there, or name another folder in "
            f'{FOLDER_VARIABLE}. host="inprocess" (NKI_DIST_HOST=inprocess) needs no Ray',
            code="ray-start",
            numbers={"got": left, "least": LEAST_DISK},
        )


def _check_address(address: str) -> None:
    """Refuse what can't be an address, and one where nobody answers."""
    if address in ("local", "auto"):
        return
    who = f"the Ray cluster at {address!r} (an argument `address` or {ADDRESS_VARIABLE})"
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "//" in address:
        raise LaunchError(
            f"can't join {who}: allowed are HOST:PORT of a node, 'auto' for the cluster of this "
            "machine, and 'local' for a Ray of this process; Ray Client (ray://) shares no memory",
            code="ray-join",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise LaunchError(
            f"can't join {who}: {error}; is it running, and is that the port of "
            "`ray start --head`?",
            code="ray-join",
        ) from error


def refuse_fork(home: int) -> None:
    """Ray's connection doesn't survive a fork: calls in the child would wait for ever.

    Args:
        home: the process that launches kernels.

    Raises:
        LaunchError: this process was forked from one that has launched kernels.
    """
    if os.getpid() != home:
        raise LaunchError(
            f"this process ({os.getpid()}) was forked from one that already launches kernels; Ray "
            "can't be used after a fork. Start processes with multiprocessing's 'spawn' method, or "
            "use nki.simulate / host='inprocess' here",
            code="ray-forked",
        )


def ray_session() -> str:
    """Names the Ray session this process is in: actors and objects of another one are gone."""
    return ray.get_runtime_context().get_node_id()
