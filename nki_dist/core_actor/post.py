"""Datagrams between a launcher and the processes of its machine: orders, and the answers to them.

A warm launch has little to say: which program, and that it is over. A datagram says it whole, wakes
who waits for it, and can't be sent to somebody who is gone. Names are in Linux's abstract
namespace, as those of bells are, which any user of the machine can send to. Pieces are pickled, and
unpickling runs what they say; so the kernel is asked whose they are, and a stranger's are dropped
unread.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
from typing import Any, Final

LARGEST: Final = 64 << 10  # bytes of a piece; Linux allows more, but not for many at once
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group


class Post:
    """One end, which has a name.

    Args:
        name: unique on this machine.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind("\0" + name)

    def send(self, name: str, item: Any) -> bool:
        """Send something; False if it can't be pickled or is too large, or nobody takes it now."""
        try:
            piece = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError):
            return False
        if len(piece) > LARGEST:
            return False
        try:
            self._socket.sendto(piece, socket.MSG_DONTWAIT, "\0" + name)
        except (BlockingIOError, ConnectionRefusedError):
            return False
        return True

    def receive(self, seconds: float | None) -> Any:
        """The next piece; None if none comes within so many seconds.

        Args:
            seconds: None for however long it takes.
        """
        self._socket.settimeout(seconds)
        while True:
            try:
                piece, ancillary, _, _ = self._socket.recvmsg(
                    LARGEST, socket.CMSG_SPACE(_CREDENTIALS.size)
                )
            except (TimeoutError, BlockingIOError):
                return None
            if any(_own(data) for *kind, data in ancillary if kind == _FROM):
                return pickle.loads(piece)

    def close(self) -> None:
        self._socket.close()


_FROM: Final = [socket.SOL_SOCKET, getattr(socket, "SCM_CREDENTIALS", 0)]


def _own(credentials: bytes) -> bool:
    """Whether the sender is this process's user."""
    _, user, _ = _CREDENTIALS.unpack(credentials[: _CREDENTIALS.size])
    return bool(user == os.getuid())
