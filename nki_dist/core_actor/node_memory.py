"""Memory that the processes of a world share on one machine: rings, and payloads of messages.

One file without a name, which each process maps whole and which takes memory only where it was
written. Whoever comes first makes it, and a link in the world's folder that leads the others to it
as long as its maker has it open; from then on two processes talk without having met: a place in it
is a number that all understand. So a world of many processes starts in steps that grow with their
number, where an object of the store for each pair that talks would take calls that grow with its
square.

Each process has a part that only it takes blocks from (`payloads.py`). At the beginning of a part
are a word that says that its process has the memory, and a word for each other process: where the
last ring from that one to here lies, 0 if there is none. The word's writer is that other process.

It isn't in Ray's object store, so its pages are this machine's memory like any other of the
processes'; `left_bytes` says how much of that there is. It is gone with the last process.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from nki_dist.core_actor.folder import Folder

WORD: Final = 8
LARGEST: Final = 1 << 45  # bytes of addresses; processes have 2**47 or more
SMALLEST_PART: Final = 64 << 20  # where addresses are scarce
CGROUP: Final = "/sys/fs/cgroup"


class NodeMemory:
    """See the module's docstring.

    Args:
        file: its number in this process, kept open until `close`.
        parts: processes of the world, on this machine or not.

    Raises:
        OSError: there are no addresses for it.
    """

    def __init__(self, file: int, parts: int) -> None:
        self._file: int | None = file
        try:
            size = os.fstat(file).st_size
            mapped = mmap.mmap(file, size)
        except OSError:
            self.close()
            raise
        with suppress(OSError):
            mapped.madvise(mmap.MADV_DONTDUMP)
        self.bytes = np.frombuffer(mapped, np.uint8)  # keeps it mapped, as do all its views
        self.words = self.bytes.view(np.int64)
        self.address, self.size, self.parts = self.bytes.ctypes.data, size, parts
        self.part = size // parts

    @classmethod
    def joined(cls, folder: Folder, name: str, parts: int) -> NodeMemory:
        """That of the processes that give this name, made by the first of them.

        Raises:
            OSError: this system has no such memory, or who made it has ended.
        """
        link = folder.at(name)
        if not os.path.lexists(link):
            new = cls(_file(name, parts), parts)
            try:
                os.symlink(f"/proc/{os.getpid()}/fd/{new._file}", link)
                return new
            except FileExistsError:  # another was faster
                new.close()
        file = os.open(link, os.O_RDWR | os.O_CLOEXEC)
        if f":{name} " not in os.readlink(f"/proc/self/fd/{file}"):
            os.close(file)
            raise FileNotFoundError(f"{name}: its maker has ended, and another has its number")
        return cls(file, parts)

    def close(self) -> None:
        """Nobody finds it here any more; it is gone when its last array is. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

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


def left_bytes() -> int:
    """Memory of this machine that nobody uses, or of what this process and others may use of it."""
    found = [_field(Path("/proc/meminfo"), "MemAvailable:") * 1024]
    with suppress(OSError, ValueError):  # no such group, or no limit
        limit = int(Path(CGROUP, "memory.max").read_text())
        used = int(Path(CGROUP, "memory.current").read_text())
        found.append(limit - used + _field(Path(CGROUP, "memory.stat"), "inactive_file"))
    return min(found)


def _field(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _file(name: str, parts: int) -> int:
    """A new one, with as much room for each part as the machine has memory."""
    file = os.memfd_create(name, os.MFD_CLOEXEC)
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
