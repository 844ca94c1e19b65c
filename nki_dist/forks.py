"""What the threads of a process share, in a process that is forked from it meanwhile.

A fork copies memory as it is, and of the threads only the one that forks. A lock that another one
held stays locked, and what that one was changing stays half changed. So what is shared is `Shared`,
whose lock is a new one in the child, `cached_property` has no lock, and a fork waits for the
imports of this package that other threads have begun, as Python has locks for these. The parent
goes on with what it has.
"""

from __future__ import annotations

import functools
import importlib
import logging  # noqa: F401  (has hooks of its own, which mustn't come while ours wait)
import os
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, Generic, TypeVar
from weakref import WeakSet

_T = TypeVar("_T")


class Shared:
    """Something that threads share, under `self._lock`; made last, after what `_forked` uses."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _shared().add(self)

    def _forked(self) -> None:
        """The child's first act: a lock that nobody holds. Overridden to drop half done things.

        Frames of the thread that forked let go of the lock that they hold, which is the old one.
        """
        self._lock = threading.RLock()


class once(Shared, Generic[_T]):
    """What a process has one of, made when it is first asked for.

    Threads that ask at the same time get the same one, which `functools.cache` doesn't promise.
    """

    def __init__(self, make: Callable[[], _T]) -> None:
        functools.update_wrapper(self, make)
        self._make = make
        self._made: list[_T] = []
        super().__init__()

    def __call__(self) -> _T:
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]


@functools.lru_cache(maxsize=1)
def _shared() -> WeakSet[Shared]:
    """All there are in this process."""
    return WeakSet()


def _finish_imports() -> None:
    for name in [name for name in sys.modules if name.startswith("nki_dist.")]:
        with suppress(ImportError):  # the thread that is at it is told
            importlib.import_module(name)  # waits for that thread


def _forked() -> None:
    for one in tuple(_shared()):
        one._forked()


os.register_at_fork(before=_finish_imports, after_in_child=_forked)


class cached_property(functools.cached_property[_T]):
    """As from Python 3.12 on, without a lock: before, there is one for the values of all instances.

    Two threads may compute a value twice.
    """

    def __init__(self, function: Callable[[Any], _T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()
