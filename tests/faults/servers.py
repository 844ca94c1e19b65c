"""A server that speaks first, as those of Ray do, or stays silent, as one that is stopped."""

from __future__ import annotations

import socket
import threading


class Server:
    """Listens, and speaks first if it is told to."""

    def __init__(self, speaks: bool = True) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        self._kept: list[socket.socket] = []
        self.speaks = speaks
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.speaks:
                connection.sendall(b"hello")
                connection.close()
            else:
                self._kept.append(connection)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
