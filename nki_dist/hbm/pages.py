"""Whether there are pages for an object: the store's size is a promise that /dev/shm may not keep.

Ray maps its whole store and takes pages as they are written. Where none is left, because other
programs fill /dev/shm, the kernel sends whoever writes a SIGBUS, which ends that process without a
word; a launcher writes a stack before any core maps it, so that would be the user's program. Hence
what could need new pages is compared with what is free before it is written. Somebody may still
take the pages in between.

The store's file is found through the raylet of this node, which holds it open; where that can't be
seen, as another user's, nothing is known and nothing refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nki_dist.tricks import uses

BLOCK: Final = 512  # bytes of stat's st_blocks
SLACK: Final = 1 << 20  # bytes for what Ray puts beside an object


@dataclass(frozen=True)
class Pages:
    """Where a store takes its pages from.

    Attributes:
        directory: of the store's file.
        free: bytes left in that file system.
        untouched: bytes of the store that have no pages yet.
    """

    directory: str
    free: int
    untouched: int

    def enough(self, need: int) -> bool:
        """Whether an object of so many bytes finds its pages, wherever in the store it comes."""
        return self.free >= min(need + SLACK, self.untouched)


def pages_of(socket: str, processes: str = "/proc") -> Pages | None:
    """Pages of the store that listens on a socket; None if that can't be seen.

    Args:
        socket: path, as `ray.nodes()` has it.
        processes: where the system shows its processes.
    """
    for process in Path(processes).glob("[0-9]*") if uses("store-pages") else ():
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if f"--store_socket_name={socket}".encode() not in arguments:
                continue
            (directory,) = [
                os.fsdecode(a.partition(b"=")[2])
                for a in arguments
                if a.startswith(b"--plasma_directory=")
            ]
            untouched = _untouched(process / "fd", directory)
            return None if untouched is None else Pages(directory, _free(directory), untouched)
        except (OSError, ValueError):
            continue  # ended meanwhile, isn't ours, or has other arguments in this version of Ray
    return None


def _untouched(files: Path, directory: str) -> int | None:
    found = None
    for link in files.iterdir():
        target = os.readlink(link)
        if target.startswith(os.path.join(directory, "plasma")):
            status = os.stat(link)  # of the file itself, which has no name any more
            missing = max(0, status.st_size - status.st_blocks * BLOCK)
            found = missing + (found or 0)
    return found


def _free(directory: str) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize
