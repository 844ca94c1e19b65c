"""Memory that the processes of a world share on one machine: rings, and payloads of messages.

One file without a name, which each process maps whole and which takes memory only where it was
written. Whoever comes first makes it and hands it to the others, once each, over a socket in the
world's folder; from then on two processes talk without having met: a place in it is a number that
all understand. So a world of many processes starts in steps that grow with their number, where an
object of the store for each pair that talks would take calls that grow with its square.

Each process has a part that only it takes blocks from (`payloads.py`). At the beginning of a part
are a word that says that its process has the memory, and a word for each other process: where the
last ring from that one to here lies, 0 if there is none. The word's writer is that other process.

It isn't in Ray's object store, so its pages are this machine's memory like any other of the
processes'; `left_bytes` says how much of that there is. It is gone with the last process.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from nki_dist.core_actor.folder import Folder

WORD: Final = 8
LARGEST: Final = 1 << 45  # bytes of addresses; processes have 2**47 or more
SMALLEST_PART: Final = 64 << 20  # where addresses are scarce
TRIES: Final = 1000  # of finding who makes it
PAUSE: Final = 0.01  # seconds between them
_CGROUP: Final = "/sys/fs/cgroup"


class NodeMemory:
    """See the module's docstring.

    Args:
        file: its number in this process, which is closed.
        parts: processes of the world, on this machine or not.

    Raises:
        OSError: there are no addresses for it.
    """

    def __init__(self, file: int, parts: int) -> None:
        try:
            size = os.fstat(file).st_size
            mapped = mmap.mmap(file, size)
        finally:
            os.close(file)
        with suppress(OSError):
            mapped.madvise(mmap.MADV_DONTDUMP)
        self.bytes = np.frombuffer(mapped, np.uint8)  # keeps it mapped, as do all its views
        self.words = self.bytes.view(np.int64)
        self.address, self.size, self.parts = self.bytes.ctypes.data, size, parts
        self.part = size // parts
        self._listening: socket.socket | None = None

    @classmethod
    def joined(cls, folder: Folder, name: str, parts: int, others: int) -> NodeMemory:
        """That of the processes that give this name, made by the first of them.

        Args:
            others: how many there are beside this one.

        Raises:
            OSError: this system has no such memory, or nobody hands it out.
        """
        for _ in range(TRIES):
            try:
                return cls._made(folder, name, parts, others)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            with suppress(ConnectionRefusedError, FileNotFoundError, EOFError):
                return cls(_received(folder, name), parts)
            time.sleep(PAUSE)
        raise OSError(f"nobody hands out the memory {name}")

    @classmethod
    def _made(cls, folder: Folder, name: str, parts: int, others: int) -> NodeMemory:
        listening = folder.listening(name)
        try:
            file = _file(parts)
            made = cls(os.dup(file), parts)
        except OSError:
            folder.remove(name)
            listening.close()
            raise
        made._listening = listening
        who = (folder, name, listening, file, others)
        threading.Thread(target=_hand_out, args=who, name="nki-memory", daemon=True).start()
        return made

    def close(self) -> None:
        """Nobody is handed it any more; it is gone when its last array is."""
        if self._listening is not None:
            with suppress(OSError):  # all have it, so the socket is closed
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening = None

    def enter(self, me: int) -> None:
        """This process has the memory: others may write rings to here."""
        self.head(me)[0] = 1

    def there(self, process: int) -> bool:
        """Whether a process has the memory."""
        return bool(self.head(process)[0])

    def head(self, process: int) -> memoryview:
        """The words of a part: whether it is there, and of each process where its ring lies."""
        start = process * self.part
        whole = self.bytes[start : start + (1 + self.parts) * WORD]
        return memoryview(whole).cast("Q")  # type: ignore[arg-type]

    def begins(self, process: int) -> int:
        """Where a process's blocks begin."""
        return process * self.part + -(-(1 + self.parts) * WORD // mmap.PAGESIZE) * mmap.PAGESIZE

    def place(self, array: np.ndarray) -> int | None:
        """Where an array lies in it, if it does."""
        at = array.ctypes.data - self.address
        return at if at >= 0 and at + array.nbytes <= self.size else None


def possible() -> bool:
    """Whether this system has such memory."""
    return hasattr(os, "memfd_create")


def left_bytes() -> int:
    """Memory of this machine that nobody uses, or of what this process and others may use of it."""
    found = [_field(Path("/proc/meminfo"), "MemAvailable:") * 1024]
    with suppress(OSError, ValueError):  # no such group, or no limit
        limit = int(Path(_CGROUP, "memory.max").read_text())
        used = int(Path(_CGROUP, "memory.current").read_text())
        found.append(limit - used + _field(Path(_CGROUP, "memory.stat"), "inactive_file"))
    return min(found)


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _file(parts: int) -> int:
    """A new one, with as much room for each part as the machine has memory."""
    if not possible():
        raise OSError("this system has no memory without a name (memfd_create)")
    file = os.memfd_create("nki-messages", os.MFD_CLOEXEC)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    part = min(1 << memory.bit_length(), 1 << (LARGEST // parts).bit_length() - 1)
    while True:
        try:
            os.ftruncate(file, part * parts)
            mmap.mmap(file, part * parts).close()
            return file
        except OSError:
            if part <= SMALLEST_PART:
                os.close(file)
                raise
            part //= 2


def _hand_out(folder: Folder, name: str, listening: socket.socket, file: int, count: int) -> None:
    """Give it to so many, or until it is closed."""
    with listening, suppress(OSError):
        for _ in range(count):
            caller, _ = listening.accept()
            with caller, suppress(OSError):  # it has died
                socket.send_fds(caller, [b"!"], [file])
    folder.remove(name)
    os.close(file)


def _received(folder: Folder, name: str) -> int:
    with folder.calling(name) as line:
        _, files, _, _ = socket.recv_fds(line, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not files:
        raise EOFError(name)
    return files[0]
