"""Python's garbage collector, out of the way of who makes many objects and no cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection meanwhile.

    Looking through a million objects again and again takes a third of the time that decoding them
    does, and as long as a replay. Where several threads pause it, the first to end turns it on for
    all.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
