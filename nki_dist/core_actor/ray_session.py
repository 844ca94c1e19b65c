"""The Ray session this process launches in: started or joined once, and not usable after a fork.

A session whose node or head is gone is left, and the next launch starts or joins another.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import ray

from nki_dist.core_actor import authentication
from nki_dist.core_actor.local_ray import local_ray
from nki_dist.core_actor.pool.borrowed import join
from nki_dist.core_actor.private import FOLDER_VARIABLE, in_private, ray_folder
from nki_dist.core_actor.ray_start import replacing
from nki_dist.core_actor.ray_use import ray_use
from nki_dist.core_actor.watchdog import HEAD, SessionLost, Watchdog
from nki_dist.errors import LaunchError
from nki_dist.runtime.progress import ticking
from nki_dist.runtime.ray_thread import ray_thread
from nki_dist.runtime.settings import object_store_bytes

ADDRESS_VARIABLE = "RAY_ADDRESS"
SHARED_MEMORY = "/dev/shm"
LEAST_DISK = 4 << 20  # bytes; a session that does nothing writes about a tenth of it
ANSWER_SECONDS = 10.0  # to answer a connection; Ray itself asks for minutes
# Without its head, Ray ends a program after so many seconds. A launch notices long before, but a
# program may do other things between launches.
HEAD_VARIABLE: Final = "RAY_gcs_rpc_server_reconnect_timeout_s"
HEADLESS_SECONDS: Final = 600
FREE_VARIABLE: Final = "RAY_free_objects_period_milliseconds"
STATISTICS_VARIABLES: Final = (
    "RAY_enable_metrics_collection",
    "RAY_task_events_report_interval_ms",
)


def ensure_ray(address: str | None, home: int | None = None) -> Watchdog:
    """Join the cluster at `address`, or a kept Ray, or start one, unless this process is in one.

    Args:
        home: the process that launches kernels; this one if None.

    Returns:
        Tells whether the session lives, which it does now.

    Raises:
        LaunchError: there is none, it doesn't start, the address or the object store's size isn't
            one, or the process can't leave a session that is lost.
    """
    refuse_fork(os.getpid() if home is None else home)
    refuse_client()
    while True:
        ray_use().wait_until_left()
        if not ray.is_initialized():
            _end_by_sigterm()
        ray_thread().do(lambda: _start_or_join(address))
        try:
            return Watchdog.here()
        except SessionLost:  # since the last launch; so it would be for whoever asks it something
            ray_use().lose()


def _end_by_sigterm() -> None:
    """End the program by SIGTERM as by sys.exit, as Ray does if the main thread starts it."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))


def _start_or_join(address: str | None) -> None:
    if ray.is_initialized():
        return
    options: dict[str, Any] = {}
    unnamed = not address and not os.environ.get(ADDRESS_VARIABLE)
    address = address or os.environ.get(ADDRESS_VARIABLE) or "local"
    check_address(address)
    if address == "local":  # not "auto": somebody else's cluster on this machine isn't ours
        if (store := object_store_bytes()) is not None:
            options["object_store_memory"] = store
        if unnamed:
            with _ray_settings():
                if join(store):
                    return
        options |= {"include_dashboard": False, **in_private()}
        # A program that joins a cluster is shown what Ray shows in any.
        options |= {"log_to_driver": False, "logging_level": logging.ERROR}
        require_disk()
        _require_shared_memory()
    local = address == "local"
    if local:
        local_ray()  # whose end a program that ends meanwhile waits for
    try:
        doing = "starting Ray" if local else f"joining the Ray cluster at {address}"
        tricks = ("ray-helpers", "ray-loopback", "ray-waits") if local else ()
        with ticking(doing), _ray_settings(local), replacing(*tricks), _sigterm_seen_to():
            ray.init(address=address, **options)
    except Exception as error:  # Ray raises no narrower type where its processes don't come up
        raise _not_up(address, error) from error
    if local:
        local_ray().started()


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


def require_disk() -> None:
    """Refuse a full disk at once; Ray would wait half a minute for files that can't be written."""
    folder = ray_folder()
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


def _require_shared_memory() -> None:
    """Refuse shared memory that can't be written, where Ray would wait half a minute for its store.

    Where there is none, Ray keeps its store in a folder of the disk.
    """
    if not os.path.isdir(SHARED_MEMORY):
        return
    try:
        with tempfile.TemporaryFile(dir=SHARED_MEMORY):
            return
    except OSError as error:
        raise LaunchError(
            f"Ray can't start on this machine: {SHARED_MEMORY}, where it keeps shared_hbm, can't "
            f"be written: {error.strerror}. Mount it writable (docker: --shm-size), or use "
            'host="inprocess" (NKI_DIST_HOST=inprocess), which needs no Ray',
            code="ray-start",
        ) from error


@contextmanager
def _sigterm_seen_to() -> Iterator[None]:
    """While Ray, which isn't started by the main thread, would warn that it leaves SIGTERM alone.

    `_end_by_sigterm` has done what Ray would.
    """
    logger = logging.getLogger("ray._private.worker")
    logger.addFilter(_not_of_sigterm)
    try:
        yield
    finally:
        logger.removeFilter(_not_of_sigterm)


def _not_of_sigterm(record: logging.LogRecord) -> bool:
    return "SIGTERM" not in record.getMessage()


@contextmanager
def _ray_settings(local: bool = False) -> Iterator[None]:
    """Sets what Ray reads when it starts, unless the program has.

    How long its processes live without a head; and that stacks are freed when we let go of them,
    not up to a second later, when larger ones have been made beside them.

    Args:
        local: whether Ray is started here: then nobody asks for its statistics, and a program whose
            Ray is gone doesn't try for 15 s to hand them in when it ends.
    """
    settings = {HEAD_VARIABLE: str(HEADLESS_SECONDS), FREE_VARIABLE: "0"}
    if local:
        settings |= dict.fromkeys(STATISTICS_VARIABLES, "0")
    ours = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def check_address(address: str) -> None:
    """Refuse what can't be an address, and one where nobody answers.

    Raises:
        LaunchError: it is one of these.
    """
    if address in ("local", "auto"):
        return
    who = f"the Ray cluster at {address!r} (an argument `address` or {ADDRESS_VARIABLE})"
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "//" in address:
        raise LaunchError(
            f"can't join {who}: allowed are HOST:PORT of a node, 'auto' for the cluster of this "
            "machine, and 'local' for a Ray of this process; Ray Client (ray://) shares no memory: "
            "submit the program as a job (`ray job submit`)",
            code="ray-join",
        )
    head = host.strip("[]"), int(port)
    try:
        socket.create_connection(head, ANSWER_SECONDS).close()
        Watchdog("", {HEAD: head}).settle()  # Ray tries for minutes where nobody speaks
    except (OSError, OverflowError, SessionLost) as error:
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


def refuse_client() -> None:
    """A program that Ray Client connects isn't on a node, so it can't reach stacks and sockets.

    Raises:
        LaunchError: this is one. Said before actors are imported, which such a program can't.
    """
    client = getattr(sys.modules.get("ray.util.client"), "ray", None)
    if client is not None and client.is_connected():
        raise LaunchError(
            "this program is connected by Ray Client (ray://), which runs it outside of the "
            "cluster, where no shared memory and no sockets of simulated cores are. Submit it as a "
            "job, which runs on a node: `ray job submit --address http://HEAD:8265 --working-dir . "
            "-- python PROGRAM.py`; or start it on a node with RAY_ADDRESS=auto. "
            "ray.shutdown() ends the connection",
            code="ray-join",
        )
