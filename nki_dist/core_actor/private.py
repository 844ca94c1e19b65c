"""A Ray that is started here is for this user and this machine alone.

Ray makes its session's folder so that everybody may write to it, and whoever may can put sockets of
their own in the place of its own. So it lies in a folder that nobody else can enter. And Ray's
servers listen on all interfaces, except where it takes machines for lonely ones, as it does on
macOS and Windows: then everything is bound to the loopback. It has no other way to ask for that
(an argument `_node_ip_address="127.0.0.1"` is replaced by the machine's address), hence this: while
it runs, its constant says so. Known of Ray 2.54 to 2.60; one without the constant listens as it
likes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from nki_dist.core_actor.ray_parts import ray_part, replaced
from nki_dist.tricks import uses

FOLDER_VARIABLE: Final = "RAY_TMPDIR"
LONGEST: Final = 107  # bytes of a socket's path
_SOCKET: Final = "ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
_CLUSTERS: Final = "ENABLE_RAY_CLUSTER"


def ray_folder() -> str:
    """Below which Ray makes a folder of its own."""
    linux = os.environ.get("TMPDIR") if sys.platform == "linux" else None
    return os.environ.get(FOLDER_VARIABLE) or linux or "/tmp"


def in_private() -> dict[str, Any]:
    """Arguments of `ray.init` with which nobody else can enter the session's folder.

    There are none where nobody can anyhow, where it can't be made (then Ray says why it can't
    start), and where the paths of sockets would be too long.
    """
    base = ray_folder()
    if _private(base):
        return {}
    folder = os.path.join(base, f"nki_dist-{os.getuid()}")
    try:
        os.makedirs(base, exist_ok=True)
        if not os.path.lexists(folder):
            os.mkdir(folder, 0o700)
        if not _private(folder):  # somebody has taken the name
            folder = tempfile.mkdtemp(prefix="nki_dist-", dir=base)
    except OSError:
        return {}
    fits = len(os.path.join(folder, _SOCKET).encode()) <= LONGEST
    return {"_temp_dir": os.path.join(folder, "ray")} if fits else {}


def _private(folder: str) -> bool:
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_mode & 0o170077 == 0o040000


@contextmanager
def on_loopback() -> Iterator[None]:
    """While Ray is started, or one that was started so is joined."""
    constants = ray_part("ray._private.ray_constants")
    there = hasattr(constants, _CLUSTERS) and uses("ray-loopback")
    with replaced(constants, {_CLUSTERS: False} if there else {}):
        yield
