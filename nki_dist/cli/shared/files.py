"""Files that options name: refused before a program runs, or in words where writing them fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nki_dist.cli.shared.command import refused
from nki_dist.errors import LaunchError


def check_writable(option: str, name: str | None, folder: bool = False) -> None:
    """Refuse what surely can't be written, while nothing has been done yet.

    Args:
        option: that names it; None is no file.
        folder: it is a folder, which is made where there is none.

    Raises:
        LaunchError: the name is a folder's, or that of one a file's, or no file can be made there.
    """
    if name is None:
        return
    path = Path(name)
    if path.exists():
        if path.is_dir() != folder:
            raise _refused(option, name, "is a folder" if path.is_dir() else "is no folder", folder)
        if not os.access(path, os.W_OK):
            raise _refused(option, name, "may not be written by this user", folder)
        return
    above = path.absolute().parent
    while folder and not above.exists():
        above = above.parent
    if not above.is_dir():
        raise _refused(option, name, f"there is no folder {above}", folder)
    if not os.access(above, os.W_OK | os.X_OK):
        raise _refused(option, name, f"this user may not write to {above}", folder)


@contextmanager
def writing(option: str, name: str, folder: bool = False) -> Iterator[None]:
    """Write what an option names; half a file that wasn't there before isn't left.

    Raises:
        LaunchError: it can't be written.
    """
    path = Path(name)
    there = path.exists()
    try:
        yield
    except OSError as error:
        if not there and path.is_file():
            path.unlink(missing_ok=True)
        raise _refused(option, name, error.strerror or str(error), folder) from None


def _refused(option: str, name: str, why: str, folder: bool) -> LaunchError:
    return refused(
        f"{option} {name}: {why}; name {'a folder' if folder else 'a file'} that can be written",
    )
