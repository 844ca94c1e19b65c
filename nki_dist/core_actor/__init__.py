"""Cores in processes of their own: the actors of Ray that run them, on which node, how they talk.

This is where Ray is imported first, because of how it takes the loss of the node a program runs on.
Ray asks whether the process RAY_RAYLET_PID still exists, or without that variable whether its own
parent does, and if not ends the program at once, with status 1 and no message. A program's parent
isn't its raylet: it is 1 wherever an init process, a container's entry point or nohup started it.
Ray keeps the variable's value when it is imported, so it is told of this process, which exists, and
nobody else sees the variable. A program that imports Ray before this package, and whose parent is
1, stays unprotected (`parent_watched`). Known of Ray 2.60; a Ray that doesn't ask ignores it.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_VARIABLE: Final = "RAY_RAYLET_PID"


def _import_ray() -> bool:
    """Import Ray with the variable set; returns whether it could be."""
    if "ray" in sys.modules or _VARIABLE in os.environ:  # in Ray's workers it is
        return False
    os.environ[_VARIABLE] = str(os.getpid())
    try:
        import ray  # noqa: F401
    finally:
        del os.environ[_VARIABLE]
    return True


_TOLD: Final = _import_ray()


def parent_watched() -> bool:
    """Whether Ray ends this process, when asked to leave a session whose node is gone."""
    return not _TOLD and os.getppid() == 1
