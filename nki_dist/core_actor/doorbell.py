"""A doorbell: a process waits for it asleep, any process of its world and machine can ring it.

A datagram socket in the world's folder. What is sent is a token without content. It stays in the
socket until it is taken, so a ring before the wait isn't lost; if the socket is full there are
tokens to wake up from, and one more isn't needed. Others ring by `Sender.send(name, TOKEN)`.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from nki_dist.core_actor.folder import Folder

TOKEN: Final = b"!"


class Doorbell:
    """The waiting side.

    Args:
        folder: of the world's processes.
        name: unique in it.
        patience: seconds after which a wait ends without a ring.
    """

    def __init__(self, folder: Folder, name: str, patience: float) -> None:
        self.folder, self.name = folder, name
        self._socket = folder.bound(name)
        self._to_itself = folder.connected(name)
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

    def ring(self) -> None:
        """Wake its owner, from another thread of the process."""
        try:
            self._to_itself.send(TOKEN, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionRefusedError):
            return  # it has tokens enough, or is being closed

    def close(self) -> None:
        self.folder.remove(self.name)
        self._socket.close()
        self._to_itself.close()
