"""Working memory of the conversions, allocated once and reused.

Invariant: a buffer is only used inside one call of one conversion, so all conversions of a core may
share a `Scratch`; two threads may not. Buffers hold at most `BLOCK` elements, because conversions
work block by block (a block and its temporaries stay in the processor's second-level cache).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array, Array], None]

BLOCK: Final = 65536
_MAX_VIEWS: Final = 512


class Scratch:
    """Reusable buffers; `get` returns the same memory for the same slot and element size."""

    __slots__ = ("_memory", "_views")

    def __init__(self) -> None:
        self._memory: dict[tuple[str, int], Array] = {}
        self._views: dict[tuple[str, tuple[int, ...], Any], Array] = {}

    def get(self, slot: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """A contiguous array with unspecified contents, valid until `slot` is asked for again."""
        view = self._views.get((slot, shape, dtype))
        if view is None:
            view = self._make(slot, shape, np.dtype(dtype))
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            self._views[slot, shape, dtype] = view
        return view

    def _make(self, slot: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        count = int(np.prod(shape, dtype=np.int64))
        key = (slot, dtype.itemsize)
        memory = self._memory.get(key)
        if memory is None or memory.size < count * dtype.itemsize:
            memory = np.empty(count * dtype.itemsize, np.uint8)
            self._memory[key] = memory
            self._views.clear()  # older views would keep the smaller buffer alive
        return memory[: count * dtype.itemsize].view(dtype).reshape(shape)


def blocked(kernel: Kernel) -> Kernel:
    """Apply an element-wise kernel to arrays of any size, `BLOCK` elements at a time at most."""

    def run(out: Array, inp: Array) -> None:
        if np.may_share_memory(out, inp):
            # A result could overwrite an input that is still to be read.
            inp = inp.copy()
        if out.size <= BLOCK:
            if out.size:
                kernel(out, inp)
        else:
            _split(kernel, out, inp)

    return run


def _split(kernel: Kernel, out: Array, inp: Array) -> None:
    if out.size <= BLOCK:
        kernel(out, inp)
    elif len(out) == 1:
        _split(kernel, out[0], inp[0])
    else:
        rows = max(1, BLOCK * len(out) // out.size)
        for start in range(0, len(out), rows):
            _split(kernel, out[start : start + rows], inp[start : start + rows])
