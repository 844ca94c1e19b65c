"""All that is Ray: the actor of a core, who runs where, how processes talk.

This is where Ray is imported first, because of how it takes the loss of the node a program runs on.
Ray asks whether the process RAY_RAYLET_PID still exists, or without that variable whether its own
parent does, and if not ends the program at once, with status 1 and no message. A program's parent
isn't its raylet: it is 1 wherever an init process, a container's entry point or nohup started it.
Ray keeps the variable's value when it is imported, so it is told of this process, which exists, and
nobody else sees the variable. A program that imports Ray before this package, and whose parent is
1, stays unprotected (`parent_watched`). Known of Ray 2.60; a Ray that doesn't ask ignores it.

Ray can't be imported again once its import was interrupted. Interrupts come to the main thread, so
another one imports it, and whoever comes next waits for that.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Final

_VARIABLE: Final = "RAY_RAYLET_PID"
_TOLD: Final = "_nki_dist_told_it"  # an attribute of a Ray that was


def _import_ray() -> None:
    """Import Ray with the variable set, if there is one; else whoever needs it hears of that."""
    os.environ[_VARIABLE] = str(os.getpid())
    try:
        with suppress(ImportError):
            import ray

            setattr(ray, _TOLD, True)
    finally:
        del os.environ[_VARIABLE]


if "ray" not in sys.modules and _VARIABLE not in os.environ:  # in Ray's workers it is
    _importing = threading.Thread(target=_import_ray, name="nki-imports-ray")
    _importing.start()
    _importing.join()


def parent_watched() -> bool:
    """Whether Ray ends this process, when asked to leave a session whose node is gone."""
    return not hasattr(sys.modules.get("ray"), _TOLD) and os.getppid() == 1
