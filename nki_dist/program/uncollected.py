"""Making many small objects that all stay: without the garbage collector, which would find nothing.

Every pass of the collector looks at all of them again, so its share grows with the program: half of
the time of tracing, ordering and replaying 100,000 instructions. Reference counts free the rest.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 10_000  # new objects that are worth being told apart from garbage


@contextmanager
def uncollected(acyclic: bool = False) -> Iterator[None]:
    """Collect no cycles meanwhile, unless somebody else has switched that off or on.

    Threads that do this together may end it for each other early: that costs time, nothing else.

    Args:
        acyclic: this package's code makes no cycles meanwhile, so the next passes needn't look
            for them either. If there are many objects, new ones count as old from here on, by way
            of `gc.freeze`, which looks at none; the few cycles that a user's kernel may have made
            are found by a pass over everything. Not where somebody has frozen many on purpose;
            Python 3.12 begins with a few hundred.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if acyclic and gc.get_count()[0] > MANY > gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
