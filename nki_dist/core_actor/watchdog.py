"""Whether the Ray session of this process still lives, and waiting that ends when it doesn't.

Two processes carry a session: the raylet of this node, and the head's gcs_server. If the raylet is
killed, its workers end a second later, Ray's health check says so after fifteen, and Ray ends the
program as soon as it writes to the object store or lets go of an object in it. If the gcs_server
is, launches go on for a while, then Ray ends the program, too. So who uses the store looks first,
and nothing that lies in the store may be dropped between a loss and leaving the session.

A connection to the raylet that nothing is sent through tells of its end at once, and asking it
costs a microsecond. Both processes also serve gRPC, and such a server speaks first, so from time to
time a connection is made, read from and closed. One that is refused means that nobody has the port.
One that stays silent means a process that is stopped, or one that has no processor time, which has
to last much longer, unless it is known to be stopped. A connection that nobody even takes, as a
kernel does for its processes whatever they do, means that the machine is gone, or the way to it.
Whatever else goes wrong says nothing about Ray. None of this calls Ray, which waits for both
processes for however long it takes.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import ray

from nki_dist.core_actor.local_ray import local_ray
from nki_dist.errors import CoreLostError

EVERY: Final = 0.5  # seconds between looks
REFUSED: Final = 1.0  # seconds of refusals after which a process is gone
UNREACHED: Final = (
    4.0  # seconds without a connection after which a machine is; a lost packet is less
)
STOPPED: Final = 4.0  # seconds of silence after which one is given up that is stopped
SILENT: Final = 12.0  # and any other
PATIENCE: Final = 0.2  # seconds to wait for a connection, and for it to speak
SLICE: Final = 0.4  # seconds between looks while waiting for something else
TLS_VARIABLE: Final = "RAY_USE_TLS"
RAYLET: Final = "the raylet of this node"
HEAD: Final = "the head's gcs_server"
_AWAY: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)


class SessionLost(Exception):
    """The Ray session is gone, and nothing of it can be asked any more; says what has ended."""


_FAILINGS: Final = {  # what a server may do, for how many seconds, and what is said of it then
    "refuses": (REFUSED, "has ended"),
    "unreached": (UNREACHED, "can't be reached: its machine or the way to it is down"),
    "silent": (SILENT, "hasn't answered for {:.0f} s"),
    "stopped": (STOPPED, "hasn't answered for {:.0f} s: it is stopped, as SIGSTOP does"),
}


@dataclass
class _Server:
    """One process that carries the session, and since when it fails in which way."""

    what: str
    address: tuple[str, int]
    stopped: Callable[[], bool] = lambda: False  # whether it may be known to be stopped
    ended: Callable[[], bool] = lambda: False  # or to have ended
    failing: dict[str, float] = field(default_factory=dict)

    def look(self, now: float, speaks: bool) -> str | None:
        """What has happened to it, if it is gone."""
        answer = _probe(self.address, speaks)
        if answer == "speaks":
            self.failing.clear()
        elif answer in _FAILINGS:
            since = self.failing.setdefault(answer, now)
            if answer == "silent" and self.stopped():
                self.failing["stopped"] = since
            if answer == "refuses" and self.ended():
                self.failing["refuses"] = -math.inf  # there is nothing to wait for
        for how, since in self.failing.items():
            limit, said = _FAILINGS[how]
            if now - since >= limit:
                where = f"{self.what} at {self.address[0]}:{self.address[1]}"
                return f"{where} {said.format(now - since)}"
        return None


def _probe(address: tuple[str, int], speaks: bool) -> str:
    """ "speaks", a way to fail, or "unknown" if the reason may be on this side."""
    try:
        connection = socket.create_connection(address, PATIENCE)
    except ConnectionError:
        return "refuses"
    except OSError as error:
        away = isinstance(error, TimeoutError) or error.errno in _AWAY
        return "unreached" if away else "unknown"
    with connection:
        try:
            return "speaks" if not speaks or connection.recv(1) else "refuses"
        except TimeoutError:
            return "silent"
        except ConnectionError:
            return "refuses"


def _connected(path: str) -> socket.socket | None:
    """A connection to the raylet; None if it has ended."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:  # it has ended already, which the other look finds out
        connection.close()
        return None
    connection.setblocking(False)
    return connection


def _hung_up(connection: socket.socket | None) -> bool:
    """Whether the other end is closed."""
    if connection is None:
        return False
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    except OSError:  # closed on this side: the collector has come by
        return False


class Watchdog:
    """Watches a session.

    Args:
        raylet: path of the raylet's socket.
        servers: what carries the session, and its address.
        clock: gives seconds.
        stopped, ended: whether one of the servers is known to be stopped, or to have ended.

    Attributes:
        gone: other nodes that were watched and have ended; Ray may not know it for a while.
    """

    def __init__(
        self,
        raylet: str,
        servers: Mapping[str, tuple[str, int]],
        clock: Callable[[], float] = time.monotonic,
        stopped: Callable[[], bool] = lambda: False,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock = clock
        self._looked = -math.inf
        self._lost: str | None = None
        # With TLS a server waits for the client's greeting, so its silence means nothing.
        self._speaks = os.environ.get(TLS_VARIABLE, "0") != "1"
        self._raylet = _connected(raylet)
        self._servers = [
            _Server(what, address, stopped, ended) for what, address in servers.items()
        ]
        self._nodes: dict[str, _Server] = {}
        self.gone: set[str] = set()

    @classmethod
    def here(cls) -> Watchdog:
        """The session that this process is in now, which lives.

        Raises:
            SessionLost: it doesn't.
        """
        context = ray.get_runtime_context()
        host, _, port = context.gcs_address.rpartition(":")
        servers, session = {HEAD: (host.strip("[]"), int(port))}, local_ray()
        judges = {"stopped": session.stopped, "ended": session.ended}
        cls("", servers, **judges).settle()  # before the head is asked for the nodes
        node = next(n for n in ray.nodes() if n["NodeID"] == context.get_node_id())
        servers[RAYLET] = (node["NodeManagerAddress"], node["NodeManagerPort"])
        found = cls(node["RayletSocketName"], servers, **judges)
        try:
            found.settle()
        except SessionLost:
            found.close()
            raise
        return found

    def watch(self, nodes: Iterable[str]) -> None:
        """Look at these nodes, too, where they are others than this one."""
        if not set(nodes) - set(self._nodes):
            return
        for n in ray.nodes():
            address = n["NodeManagerAddress"], n["NodeManagerPort"]
            if n["NodeID"] in nodes and address not in [s.address for s in self._servers]:
                self._nodes.setdefault(n["NodeID"], _Server("its raylet", address))

    def lost(self, now_too: bool = False) -> str | None:
        """What is gone, if the session is.

        Args:
            now_too: look until it is certain, because something has failed that this would explain.
        """
        if self._lost is None and _hung_up(self._raylet):
            self._lost = f"{RAYLET} has ended"
        while self._lost is None:
            now = self._clock()
            if now - self._looked >= EVERY or now_too:
                self._looked = now
                found = [server.look(now, self._speaks) for server in self._servers]
                self._lost = next((text for text in found if text), None)
                for node, server in self._nodes.items():
                    if node not in self.gone and server.look(now, self._speaks):
                        self.gone.add(node)
            if not (now_too and any("refuses" in server.failing for server in self._servers)):
                break
            time.sleep(PATIENCE)
        return self._lost

    def settle(self) -> None:
        """Return once both processes speak: from then on Ray can be asked what they answer.

        Raises:
            SessionLost: one is gone, or stays silent.
        """
        while True:
            self._looked = -math.inf
            self.check()
            if not any(server.failing for server in self._servers):
                return
            time.sleep(PATIENCE)

    def close(self) -> None:
        """Nobody asks any more."""
        if self._raylet is not None:
            self._raylet.close()
            self._raylet = None

    def check(self) -> None:
        """See that it lives.

        Raises:
            SessionLost: it doesn't.
        """
        text = self.lost()
        if text is not None:
            raise SessionLost(text)


class Patience:
    """Waits for answers of Ray actors: not longer than a launch may take, nor for a lost session.

    Args:
        watchdog: of the session.
        seconds: from now; None for as long as it takes.
    """

    def __init__(self, watchdog: Watchdog, seconds: float | None) -> None:
        self.watchdog = watchdog
        self.seconds = math.inf if seconds is None else seconds
        self.ends = time.monotonic() + self.seconds

    def left(self) -> float:
        """Seconds."""
        return self.ends - time.monotonic()

    def wait(
        self, futures: Sequence[Any], whose: Callable[[list[int]], str], node: str = ""
    ) -> None:
        """Return when all futures have answers, of whatever kind.

        Args:
            whose: names those with these numbers, for the message.
            node: on which all of them are, if it isn't this one.

        Raises:
            CoreLostError: time is up, or the node is gone.
            SessionLost: nobody can answer any more.
        """
        open_ = list(futures)
        while open_:
            self.watchdog.check()
            if node in self.watchdog.gone:
                raise CoreLostError(f"the Ray node {node} is gone; the next launch does without")
            slice_ = min(SLICE, max(self.left(), 0.01))
            _, open_ = ray.wait(open_, num_returns=len(open_), timeout=slice_)
            if open_ and self.left() < 0:
                late = [n for n, future in enumerate(futures) if future in open_]
                raise CoreLostError(
                    f"{whose(late)} didn't answer within the world's timeout of "
                    f"{self.seconds:g} s; the next launch does without"
                )
