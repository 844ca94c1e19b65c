"""Datagrams between a launcher and the processes of its machine: orders, and the answers to them.

A warm launch has little to say: which program, and that it is over. A datagram says it whole, wakes
who waits for it, and can't be sent to somebody who is gone. Pieces are pickled, and unpickling runs
what they say; so the sockets are in the world's folder, which nobody else can enter.
"""

from __future__ import annotations

import pickle
import socket
from contextlib import suppress
from typing import Any, Final

from nki_dist.core_actor.folder import Folder, Sender

LARGEST: Final = 64 << 10  # bytes of a piece; Linux allows more, but not for many at once


class Mailbox:
    """One end, which has a name.

    Args:
        folder: of the world's processes.
        name: unique in it.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self.name = name
        self._folder = folder
        self._socket = folder.bound(name)
        self._sender = Sender(folder)

    def send(self, name: str, item: Any) -> bool:
        """Send something; False if it can't be pickled or is too large, or nobody takes it now."""
        try:
            piece = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError):
            return False
        return len(piece) <= LARGEST and self._sender.send(name, piece)

    def receive(self, seconds: float | None) -> Any:
        """The next piece; None if none comes within so many seconds, or after `hang_up`.

        Args:
            seconds: None for however long it takes.
        """
        self._socket.settimeout(seconds)
        try:
            piece = self._socket.recv(LARGEST)
        except (TimeoutError, BlockingIOError):
            return None
        return pickle.loads(piece) if piece else None

    def hang_up(self) -> None:
        """Nothing comes any more: wakes who waits, from another thread."""
        with suppress(OSError):  # it is closed
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._folder.remove(self.name)
        self._socket.close()
        self._sender.close()
