"""The Ray that this process started ends with it: at once, and whole.

At the end of a program Ray waits half a second, so that what its actors print may still be shown. A
Ray that is started here shows nothing of them (`log_to_driver`), so it needn't wait; but whoever
sends it calls of their own and doesn't wait for them has that half second in any other Ray, and
has it in this one. Nothing else is lost: when a program ends, Ray runs no `atexit`, `__del__` or
`__ray_shutdown__` of its actors, and kills what they have started.

Ray ends its servers, and these end the others. If a server is killed before, or because it took too
long, its workers notice within a second, and its agents, which look for their parent now and then,
after ten. So processes are noted while their parents live, and what is left in the end is killed.
"""

from __future__ import annotations

import atexit
import os
import time
from typing import Final

import ray
import ray.exceptions
from ray.experimental import internal_kv

from nki_dist.core_actor.processes import Process, by_parent
from nki_dist.forks import once
from nki_dist.runtime.ray_thread import ray_thread
from nki_dist.tricks import uses

ENDS: Final = 60.0  # seconds for a start that is under way, and for the end
UNHEARD: Final = 0.5  # seconds for calls that nobody waits for, as Ray has it
KILLED: Final = 10.0  # seconds in which a killed process is gone, however busy the machine is
IDLE: Final = "ray::IDLE"  # title of a process without a task or actor
EXPORTED: Final = "fun"  # where Ray keeps the functions and classes that it was given to run


class LocalRay:
    """The one of this process, if it has one."""

    def __init__(self) -> None:
        self._home = os.getpid()
        self._session = ""
        self._servers: list[Process] = []
        self._processes: set[Process] = set()

    def started(self) -> None:
        """The session that this process is in was started by it, just now."""
        self._session, self._servers = _current(), []

    def here(self) -> bool:
        """Whether this process is in the session that it started."""
        return bool(self._session) and ray.is_initialized() and self._session == _current()

    def note(self) -> None:
        """Know its processes of now, and forget those that have ended."""
        if not self._session or not uses("ray-end"):
            return
        children = by_parent()
        mine = children.get(self._home, [])
        self._servers = self._servers or [p for p in mine if self._session in p.command()]
        found = [p for p in self._processes.union(self._servers) if p.there()]
        for process in found:  # which grows
            found += children.get(process.pid, [])
        self._processes = set(found)

    def stopped(self) -> bool:
        """Whether one of its servers is known to be stopped, as by SIGSTOP."""
        self.note()
        return any(server.stopped() for server in self._servers)

    def ended(self) -> bool:
        """Whether it is in its own session, and one of its servers is known to have ended."""
        return self.here() and not all(server.there() for server in self._servers)

    def end_stopped_idlers(self) -> None:
        """End processes that were to become actors and are stopped.

        Ray gives them to worlds that start, and waits for them as long as they are stopped.
        """
        self.note()
        for process in self._processes:
            if process.stopped() and process.command().startswith(IDLE):
                process.kill()

    def end(self) -> None:
        """Leave the session if it is still this process's, and return when nothing of it runs."""
        if self.here():
            self.note()
            if not all(s.there() and not s.stopped() for s in self._servers):
                self._kill()  # who asks one that is stopped waits as long as it is
            elif _given_more():
                time.sleep(UNHEARD)
            ray.shutdown()
        self._kill()

    def end_program(self) -> None:
        """The program ends; it waits for a start that was interrupted, unless interrupted again."""
        if os.getpid() != self._home or not ray_thread().used:
            return  # a fork, whose parent still has it; or Ray was never started here
        try:
            ray_thread().do(self.end, ENDS)
        except (TimeoutError, KeyboardInterrupt):
            self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
        late = time.monotonic() + KILLED
        while any(p.there() for p in self._processes) and time.monotonic() < late:
            time.sleep(0.001)


def _current() -> str:
    """The session that this process is in."""
    return str(ray.get_runtime_context().get_session_name())


def _given_more() -> bool:
    """Whether Ray was given something to run besides our actors, by whomever, and is there."""
    store, where = internal_kv.internal_kv_get_gcs_client(), EXPORTED.encode()
    try:
        names = store.internal_kv_keys(b"", where, timeout=UNHEARD)
        values = store.internal_kv_multi_get(names, where, timeout=UNHEARD).values()
    except ray.exceptions.RayError:  # without a time-out it would try for minutes
        return False
    return not all(b"nki_dist.core_actor" in value for value in values)


@once
def local_ray() -> LocalRay:
    """That of this process; ends before Ray ends by itself, which is registered earlier."""
    local = LocalRay()
    atexit.register(local.end_program)
    return local
