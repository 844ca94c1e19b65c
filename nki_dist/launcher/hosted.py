"""What carries out a world's launches: started when first needed, ended when the world is.

A world that is dropped ends its processes as a file that is dropped is closed: a cell of a notebook
that is run again leaves none behind.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError, NkiError, UnseenErrorWarning, as_warning
from nki_dist.forks import Shared
from nki_dist.isa.core import CoreSlot
from nki_dist.launcher.idle import idlers
from nki_dist.launcher.residence import Residence
from nki_dist.launcher.resident_launch import ResidentLaunch
from nki_dist.launcher.row import Row
from nki_dist.launcher.session import idle_after, session
from nki_dist.launcher.tracebacks import leaves_package
from nki_dist.runtime.hosts import Host, InProcessHost, forced_algorithm, slots
from nki_dist.runtime.ray_thread import ray_thread
from nki_dist.runtime.settings import OPTIONS_VARIABLE, actor_options
from nki_dist.topology.topology import Topology

_W = TypeVar("_W", bound="Hosted")


class Hosted(Shared):
    """A world's host, for whom `World` says what it is to be; under the world's lock."""

    wait: Callable[[], None]

    def __init__(
        self,
        arch: Arch,
        ranks: int,
        lnc: int,
        host: str,
        dry: bool,
        memory: int | None,
        threads: int | None,
        on_ray: dict[str, Any],
    ) -> None:
        self.arch, self.ranks, self.lnc = arch, ranks, lnc
        self.host_name, self.dry, self.closed = host, dry, False
        self._memory, self._threads = memory, threads
        self._on_ray = on_ray  # what else a host on Ray is told
        self._host: Host | None = None
        self._used = 0.0  # when a launch began, or was seen to be under way
        self._algorithm = ""  # asked for when the host was started
        self.residence = Residence(self)
        self._row = Row(stopping(self), ResidentLaunch.together)
        # Launches share the stacks and the actors, so only one may be under way.
        super().__init__()

    @property
    def topology(self) -> Topology:
        """Which instance, chip, HBM stack and cores each rank has, and how far apart ranks are."""
        return Topology(self.arch, self.ranks, self.lnc)

    @property
    def ranks_per_node(self) -> int:
        """Ranks that NeuronLink connects."""
        return self.topology.ranks_per_instance * self.arch.instances_per_ultraserver

    @property
    def slots(self) -> list[CoreSlot]:
        """Its cores, ranks one after the other."""
        return slots(self.ranks, self.lnc, self.ranks_per_node)

    def _forked(self) -> None:
        super()._forked()
        self._row.forget()
        if self.host_name != "ray":  # that one isn't to be touched: Ray's locks are in no Python
            self._host = None

    def __enter__(self: _W) -> _W:
        self.start()
        return self

    def __exit__(self, kind: Any, error: Any, *_: Any) -> None:
        try:
            if kind is None:
                self.wait()
            elif not isinstance(error, Exception):  # an interrupt
                self._row.give_up(error)
        finally:
            self.close()

    def close(self) -> None:
        """Stop the cores and release their memory, after the launches before."""
        self._row.drain()
        if isinstance(unseen := self._row.take_first(), NkiError):
            session().warn(as_warning(unseen, UnseenErrorWarning))
        with self._lock:
            self.closed = True
            if self._host is not None:
                self._host.close()
                self._host = None  # not before: a close that was interrupted is done again

    def rest(self, seconds: float) -> None:
        """End processes that weren't used for so long; see `nki_dist.launcher.idle`."""
        if not self._lock.acquire(blocking=False):
            self._used = time.monotonic()  # by somebody, now
            return
        try:
            if self.residence.in_use or not self._row.idle:
                self._used = time.monotonic()  # whoever has tensors in HBM may want them
            if self._host is not None and time.monotonic() - self._used >= seconds:
                self._host.close()
                self._host = None  # the next launch starts another
            if self._host is None:
                idlers().forget(self)
        finally:
            self._lock.release()

    def __del__(self) -> None:
        """One that is dropped ends its processes, as a file that is dropped is closed."""
        host = self.__dict__.get("_host")  # which one that was refused hasn't got
        if host is None or self.host_name != "ray":
            return  # what isn't in other processes goes with it
        if sys.is_finalizing() or session().process != os.getpid():
            return  # a program's processes end with it, and aren't those of a fork
        ray_thread().begin(host.close)  # no call of Ray here: this thread may be amid one
        warnings.warn(
            f"a World of {self.ranks} ranks was dropped without close(), which ends its processes "
            "now; `with nki.World(...) as world:` closes it",
            ResourceWarning,
            stacklevel=2,
        )

    @leaves_package
    def start(self) -> None:
        """Start the cores now; otherwise the first launch does."""
        if session().checker is not None or self.dry:
            return  # nothing will run on them
        with self._lock:
            self._started()

    @property
    def host(self) -> Host:
        """The host, started when first needed."""
        with self._lock:
            return self._started()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise LaunchError("this world is closed; make another nki.World", code="world-closed")

    def _started(self) -> Host:
        self._refuse_closed()
        self._used = time.monotonic()
        if self._host is None:
            self._algorithm = forced_algorithm()
            instance, node = self.topology.ranks_per_instance, self.ranks_per_node
            if self.host_name != "ray":  # "debug" runs kernels elsewhere, and saved programs here
                self._host = InProcessHost(self.ranks, self.lnc, node, self._memory, self._threads)
            else:
                if (seconds := idle_after()) is not None:
                    idlers().watch(self, seconds)  # which waits for the lock, so for the host
                self._host = ray_thread().do(ray_host)(
                    self.ranks,
                    self.lnc,
                    ranks_per_instance=instance,
                    ranks_per_node=node,
                    home=session().process,
                    threads=self._threads,
                    **self._on_ray,
                )
        return self._host


def stopping(world: Any) -> Callable[[], None]:
    """What ends the launch under way in a world, which it doesn't keep alive."""
    of = weakref.ref(world)

    def stop() -> None:
        host = getattr(of(), "_host", None)
        if host is not None:
            host.stop()

    return stop


def ray_request(options: object, group: object) -> dict[str, Any]:
    """What a world asks Ray for beside actors, checked, as an argument of the host on Ray.

    Args:
        options, group: World's arguments.

    Raises:
        LaunchError: Ray has no such options.
    """
    where = "actor_options"
    if options is None:
        options, where = actor_options(), OPTIONS_VARIABLE
    if options is None and group is None:
        return {}
    return {"request": ray_thread().do(lambda: _request(options, group, where))}


def _request(options: object, group: object, where: str) -> Any:
    from nki_dist.core_actor.ray_session import refuse_client

    refuse_client()
    from nki_dist.core_actor.request import Request

    return Request.of(options, group, where)


def ray_host() -> Callable[..., Host]:
    """The host on Ray; imports Ray, which a program without it doesn't need.

    In Ray's own thread, as an import that is interrupted can't be done again.
    """
    from nki_dist.core_actor.ray_session import refuse_client

    refuse_client()
    from nki_dist.core_actor.ray_host import RayHost

    return RayHost
