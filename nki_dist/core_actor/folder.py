"""Where the sockets of a world's processes lie: a folder that nobody else of the machine can enter.

Whoever can't enter it can neither send to a socket in it, nor fill its queue, nor take its name.
It lies beside the raylet's socket, which every process of a node reaches, whatever else of the file
system it shares. Others may be able to rename it there, and to put one of theirs in its place; so
it is opened once, the kernel is asked whose it is, and sockets are named below what was opened,
which also keeps their paths short.

Each process that is in it holds a shared lock, which ends with the process. So who gets the lock
for itself alone knows that nobody is in it any more, and removes it. Killed processes don't; what
they leave goes when the next folder is made beside it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_PREFIX: Final = "nki-"
_TRIES: Final = 5  # of entering one that others remove just then
_CONNECTED: Final = 64  # sockets that a sender keeps


class Folder:
    """An open one.

    Args:
        path: it is made if it isn't there.

    Raises:
        OSError: it can't be entered, or others can enter it, too.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._number = _entered(path)
        self._below = f"/proc/self/fd/{self._number}"

    @classmethod
    def inside(cls, parent: str, name: str) -> Folder:
        """The one of that name that belongs to a set of processes."""
        return cls(os.path.join(parent, _PREFIX + name))

    @classmethod
    def alone(cls) -> Folder:
        """One that only this process knows."""
        return cls(tempfile.mkdtemp(prefix=_PREFIX))

    def at(self, name: str) -> str:
        """The path of a socket."""
        return f"{self._below}/{name}"

    def bound(self, name: str) -> socket.socket:
        """A new socket for datagrams to that name."""
        return self._socket(socket.socket.bind, name)

    def connected(self, name: str) -> socket.socket:
        """A new socket for datagrams from here to that name."""
        return self._socket(socket.socket.connect, name)

    def _socket(self, attach: Callable[[socket.socket, str], None], name: str) -> socket.socket:
        new = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            attach(new, self.at(name))
        except OSError:
            new.close()
            raise
        return new

    def remove(self, name: str) -> None:
        """The socket of that name is closed."""
        with suppress(OSError):  # who removes the folder may have been faster
            os.unlink(self.at(name))

    def close(self, whole: bool = False) -> None:
        """Leave it; the last one removes it.

        Args:
            whole: remove it in any case, as all others are about to end.
        """
        if self._number < 0:
            return
        with suppress(OSError):  # others are in it
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            whole = True
        if whole:
            _remove(self._number, self.path)
        # Who is interrupted behind `close` closes again, and the number may be another file's then.
        number, self._number = self._number, -1
        os.close(number)


class Sender:
    """Sends datagrams to the sockets of a folder, over connections that it keeps."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._to: dict[str, socket.socket] = {}

    def send(self, name: str, data: bytes) -> bool:
        """Send without waiting; False if the socket's queue is full, or nobody has it."""
        try:
            (self._to.get(name) or self._connect(name)).send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except (ConnectionError, FileNotFoundError):
            if name in self._to:
                self._to.pop(name).close()
            return False
        return True

    def _connect(self, name: str) -> socket.socket:
        if len(self._to) >= _CONNECTED:
            self._to.pop(next(iter(self._to))).close()
        new = self._to[name] = self._folder.connected(name)
        return new

    def close(self) -> None:
        for connected in self._to.values():
            connected.close()
        self._to.clear()


def _entered(path: str) -> int:
    """The number of the open folder, with the lock that says that somebody is in it."""
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
            _sweep(path)
        with suppress(FileNotFoundError), _opened(path) as number:
            fcntl.flock(number, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(number), os.lstat(path)):
                return os.dup(number)  # which has the same lock
    raise FileNotFoundError(f"{path} is removed whenever it is made")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """The number of a folder of this user alone."""
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(number)
        if status.st_uid != os.getuid() or status.st_mode & 0o77:
            raise PermissionError(
                f"{path} must belong to user {os.getuid()} alone; it has owner {status.st_uid} and "
                f"mode {status.st_mode & 0o777:o}"
            )
        yield number
    finally:
        os.close(number)


def _sweep(new: str) -> None:
    """Remove this user's folders beside a new one that nobody is in any more."""
    parent, name = os.path.split(new)
    for other in os.listdir(parent):
        if other.startswith(_PREFIX) and other != name:
            path = os.path.join(parent, other)
            with suppress(OSError), _opened(path) as number:  # somebody else's, or used
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(number, path)


def _remove(number: int, path: str) -> None:
    with suppress(OSError):  # what can't be removed is left
        for name in os.listdir(number):
            os.unlink(name, dir_fd=number)
        os.rmdir(path)
