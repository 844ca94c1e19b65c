"""Where the keeper of this user is found: a socket in a folder that nobody else can enter.

There is no file with addresses or numbers that could be out of date: who wants to know something
asks the keeper, over a connection with messages of JSON. A socket that nobody answers is what a
killed keeper left, or a machine that was switched off; the lock, which the kernel lets go of with
its process, says which process may clear it away. Both sides ask the kernel whose the other is.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nki_dist.errors import LaunchError

FOLDER_VARIABLE: Final = "NKI_DIST_CLUSTER_DIR"
NAMESPACE: Final = "nki-dist-kept"  # of the actors, in the kept Ray
SOCKET: Final = "keeper"
LOCK: Final = "lock"
LOG: Final = "log"
LARGEST: Final = 32 << 10  # bytes of a message
LONGEST: Final = 107  # bytes of a socket's path
ANSWER_SECONDS: Final = 3.0
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group


class Stale(Exception):
    """A keeper was here and ended without clearing up."""


class Silent(Exception):
    """A keeper is here and doesn't answer, or not as one does."""


def folder() -> Path:
    """Where this user's keeper is, if there is one; needn't exist."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    run = os.environ.get("XDG_RUNTIME_DIR")
    return Path(run, "nki_dist") if run else Path(f"/tmp/nki_dist-{os.getuid()}")


def make() -> Path:
    """The folder, made if need be.

    Raises:
        LaunchError: it can't be, or others can enter it.
    """
    where = folder()
    if len(str(where / SOCKET).encode()) > LONGEST:
        raise LaunchError(
            f"{where} is too long for a socket's path ({LONGEST} bytes with /{SOCKET}); name a "
            f"shorter folder in {FOLDER_VARIABLE}",
            code="cluster-place",
        )
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"can't make {where} for the kept Ray: {error}; name another folder in "
            f"{FOLDER_VARIABLE}",
            code="cluster-place",
        ) from error
    check(where)
    return where


def check(where: Path) -> None:
    """See that a folder is this user's alone.

    Raises:
        LaunchError: it isn't. Whoever can enter it could hand programs a Ray of his own.
    """
    status = os.lstat(where)
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o77:
        return
    raise LaunchError(
        f"{where}, the folder of the kept Ray, must be a directory of user {os.getuid()} that "
        f"nobody else can enter (mode 700); it has owner {status.st_uid} and mode "
        f"{stat.S_IMODE(status.st_mode):o}. `chmod 700` it, or name another in {FOLDER_VARIABLE}",
        code="cluster-place",
    )


def lock(where: Path) -> int | None:
    """The keeper's lock, held until this process ends or closes it; None if another has it."""
    number = os.open(where / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(number)
        return None
    return number


def listen(where: Path) -> socket.socket:
    """The keeper's socket; only for who holds the lock."""
    (where / SOCKET).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(str(where / SOCKET))
    listening.listen(64)
    return listening


def connect() -> Line | None:
    """A line to the keeper; None if there is none.

    Raises:
        Stale: there was one.
        LaunchError: others can enter its folder.
    """
    where = folder()
    if not os.path.lexists(where / SOCKET):
        return None
    check(where)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(str(where / SOCKET))
    except OSError as error:
        connection.close()
        if isinstance(error, FileNotFoundError):  # it has just ended
            return None
        if isinstance(error, ConnectionRefusedError):
            raise Stale(str(where / SOCKET)) from None
        raise Silent(str(error)) from error
    return Line(connection)


class Line:
    """One side of a connection. A request is a message, and so is its answer."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, user, _ = _CREDENTIALS.unpack(raw)
        self.same_user = user == os.getuid()

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            Silent: none comes in time, or what comes isn't one.
        """
        if not self.same_user:
            raise Silent("it belongs to another user")
        try:
            self.send(request)
            answer = self.take()
        except TimeoutError:
            raise Silent(f"no answer for {ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise Silent(str(error)) from error
        if answer is None:
            raise Silent("it has hung up, or sent what isn't an answer")
        return answer

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message).encode())

    def take(self) -> dict[str, Any] | None:
        """The next message; None if the other side has hung up, or sent something else."""
        data = self.socket.recv(LARGEST)
        try:
            found = json.loads(data) if data else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """Hang up, also for a fork of this process that has the connection, too."""
        with suppress(OSError):  # the other side may have been faster
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def status() -> dict[str, Any] | None:
    """What the keeper says of itself; None if there is none.

    Raises:
        Stale: there was one.
        Silent: it doesn't answer.
        LaunchError: others can enter its folder.
    """
    line = connect()
    if line is None:
        return None
    try:
        return line.ask(want="status")
    finally:
        line.close()
