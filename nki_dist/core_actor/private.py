"""The folder of a Ray that is started here is for this user alone.

Ray makes its session's folder so that everybody may write to it, and whoever may can put sockets of
their own in the place of its own. So it lies in a folder that nobody else can enter.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Final

FOLDER_VARIABLE: Final = "RAY_TMPDIR"
LONGEST: Final = 107  # bytes of a socket's path
_SOCKET: Final = "ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"


def ray_folder() -> str:
    """Below which Ray makes a folder of its own."""
    return os.environ.get(FOLDER_VARIABLE) or os.environ.get("TMPDIR") or "/tmp"


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
