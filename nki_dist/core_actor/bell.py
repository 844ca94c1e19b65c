"""A doorbell: a process waits for it asleep, any process of the machine can ring it.

A datagram socket in Linux's abstract namespace, so it is no file and ends with its process. What is
sent is a token without content. It stays in the socket until it is taken, so a ring before the wait
isn't lost; if the socket is full there are tokens to wake up from, and one more isn't needed.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final

_TOKEN: Final = b"!"


def possible() -> bool:
    """Whether this system has such sockets."""
    return sys.platform == "linux"


class Bell:
    """The waiting side.

    Args:
        name: unique on this machine.
        patience: seconds after which a wait ends without a ring.
    """

    def __init__(self, name: str, patience: float) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name)
        whole = int(patience)
        span = struct.pack("@ll", whole, int((patience - whole) * 1e6))
        # A receive time-out in the socket, not Python's: that one costs a poll before each receive.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)

    def wait(self) -> bool:
        """Sleep until somebody rings; True unless patience ran out first. Takes all tokens."""
        try:
            self._socket.recv(1)
        except BlockingIOError:
            return False
        while True:
            try:
                self._socket.recv(1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True

    def close(self) -> None:
        self._socket.close()


class Ringer:
    """The other side: rings the bells of others."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def ring(self, name: str) -> None:
        """Wake the owner of a bell. One that is gone doesn't mind."""
        try:
            self._socket.sendto(_TOKEN, socket.MSG_DONTWAIT, "\0" + name)
        except (BlockingIOError, ConnectionRefusedError):
            return  # it has tokens enough, or its process is gone, which the launcher notices

    def close(self) -> None:
        self._socket.close()
