"""Making many small objects that all stay: without the garbage collector, which would find nothing.

Every pass of the collector looks at all of them again, so its share grows with the program: half of
the time of tracing, ordering and replaying 100,000 instructions. Reference counts free the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no cycles meanwhile, unless somebody else has switched that off or on.

    Threads that do this together may end it for each other early: that costs time, nothing else.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
