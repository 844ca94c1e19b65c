"""Kernels as a script or a notebook cell defines them, and their keys."""

from __future__ import annotations

import textwrap
from typing import Any

from nki_dist.launcher.cachekey import Fingerprinter

SOURCE = """
    import collections, dataclasses, enum, functools, math, os, random, sys, time
    import logging
    import numpy as np
    from typing import NamedTuple, Optional

    TILE = 128
    NEGATIVE = 0.0
    SIZES = [1, 2, [3, 4]]
    TABLE = {"a": 1, "b": {2}}
    ARRAY = np.arange(6, dtype=np.int16).reshape(2, 3)
    LOGGER = logging.getLogger("nki_dist.tests")
    ORDERED = collections.OrderedDict(x=1, y=2)

    class Mode(enum.Enum):
        FAST = "fast"
        SLOW = "slow"

    class Pair(NamedTuple):
        left: int
        right: Optional[int] = 7

    @dataclasses.dataclass(frozen=True)
    class Config:
        depth: int = 2
        widths: tuple = (1, 2)
        def area(self):
            return self.depth * TILE

    class Base:
        unit = 4
        def scale(self, x):
            return x * self.unit
        @property
        def twice(self):
            return 2 * self.unit

    class Slotted(Base):
        __slots__ = ("value", "later")
        def __init__(self, value):
            self.value = value

    CONFIG = Config()
    SLOTTED = Slotted(3)
    MODE = Mode.FAST

    def helper(x, factor=2, *, bias=1):
        return deeper(x) * factor + bias

    def deeper(x):
        return x + TILE if x else recursive(3)

    def recursive(n):
        return 1 if n == 0 else n * even(n - 1)

    def even(n):
        return recursive(n - 1) if n else 0

    @functools.lru_cache(maxsize=None)
    def memoised(n):
        return n * TILE

    bound = functools.partial(helper, factor=5)

    def make(scale, box):
        def closed(x):
            nonlocal_names = [scale * each for each in box]
            return nonlocal_names + [lambda: scale]
        return closed

    CLOSED = make(3, [1, 2])

    def kernel(x):
        LOGGER.debug("tracing")
        total = helper(x) + bound(x) + NEGATIVE + SIZES[0] + TABLE["a"] + ARRAY.sum()
        total += CONFIG.area() + SLOTTED.scale(2) + Pair(1).right + math.floor(np.float32(2.5))
        if MODE is Mode.FAST and ORDERED:
            total += memoised(4)
        print(total, file=sys.stderr)
        return [total for _ in range(3)], CLOSED(x), np.zeros_like(ARRAY)
"""


def namespace(source: str = SOURCE, file: str = "kernel.py", **given: Any) -> dict[str, Any]:
    """What a script or a notebook cell defines, run the way an interpreter runs it."""
    names = {"__name__": "__main__", **given}
    exec(compile(textwrap.dedent(source), file, "exec"), names)
    return names


def key_of(keys: Fingerprinter, function: Any, values: Any = ()) -> Any:
    key = keys.fingerprint(function, values)
    assert key == Fingerprinter().fingerprint(function, values)  # warm and cold agree
    return key
