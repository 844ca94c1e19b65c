"""What stands between the brackets of `tensor[...]`: slices, single indices, `nl.ds`.

As in NumPy, a slice that reaches beyond the end is cut, which published kernels use for their last
tile, and one that asks for nothing (`a[5:5]`) is empty. One that asks for elements and has none of
them, because it begins past the end, is a mistake: NumPy's empty result would only be noticed by an
instruction further down.
"""

from __future__ import annotations

from typing import Any

from nki_dist.errors import NkiValidationError, invalid
from nki_dist.language.views import Views
from nki_dist.program import VirtualRegister

FULL = slice(None)


class ds:
    """`nl.ds(start, size)`: `size` elements from `start`, an int or a register."""

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: int) -> None:
        self.start = start
        self.size = size

    def __repr__(self) -> str:
        return f"nl.ds({self.start}, {self.size})"


class Indexing(Views):
    """A view that reads subscripts."""

    __slots__ = ()

    def _plain(self, key: tuple[Any, ...]) -> tuple[int, tuple[int, ...], tuple[int, ...]] | None:
        """Offset, shape and strides, where all that stands in the brackets is in range, known now
        and not empty: most subscripts are, and need no more questions."""
        missing = len(self.shape) - len(key)
        if missing:
            if missing < 0:
                return None
            key += (FULL,) * missing  # an Ellipsis among the others isn't plain
        offset = self.offset
        sizes: list[int] = []
        strides: list[int] = []
        for k, n, stride in zip(key, self.shape, self.strides):
            kind = type(k)
            if kind is slice:
                start, stop = k.start, k.stop
                if k.step is not None:
                    return None
                if start is None:
                    start = 0
                elif type(start) is not int or start < 0:
                    return None
                if stop is None:
                    stop = n
                elif type(stop) is not int:
                    return None
                elif stop > n:
                    stop = n
            elif kind is ds:
                start, size = k.start, k.size
                if type(start) is not int or type(size) is not int or start < 0:
                    return None
                stop = start + size
                if stop > n:
                    return None
            elif kind is int and 0 <= k < n:
                offset += k * stride
                if not sizes and self.storage.region.on_chip:
                    sizes.append(1)  # the partition dimension stays
                    strides.append(stride)
                continue
            else:
                return None
            if start >= stop:
                return None
            offset += start * stride
            sizes.append(stop - start)
            strides.append(stride)
        if len(sizes) < 2 and (not sizes or self.storage.region.on_chip):
            return None  # another dimension is added
        return offset, tuple(sizes), tuple(strides)

    def _sliced(self, k: Any, d: int) -> tuple[int, int, int]:
        """(size, start, step) of a slice."""
        n = self.shape[d]
        if k.start is None and k.stop is None and k.step is None:
            return n, 0, 1
        if isinstance(k.start, VirtualRegister) or isinstance(k.stop, VirtualRegister):
            message = "a slice bound can't be a register; use nl.ds(register, size)"
            raise invalid(message, code="index-kind")
        try:
            start, stop, step = k.indices(n)
        except TypeError:
            for bound in (k.start, k.stop, k.step):
                if bound is not None:
                    self._bound(bound, d)
            raise
        except ValueError:
            step = 0
        if step < 1:
            message = f"slice step {k.step} on dimension {d} of {self._title()}; must be >= 1"
            raise invalid(message, code="slice-step", got=step, least=1)
        size = max(0, -(-(stop - start) // step))
        if not size:
            self._refuse_past_end(k, d)
        self._guard(d, (start, stop, step) != (0, n, 1))
        return size, start, step

    def _refuse_past_end(self, k: Any, d: int) -> None:
        """An empty slice must have been asked for as one."""
        n = self.shape[d]
        first = 0 if k.start is None else k.start.__index__()
        if k.stop is None:  # `a[64:]` of 64 rows: what is left over, which may be nothing
            if first > n:
                raise self._outside(f"slice {_text(k)}", d, first, first)
            return
        last = k.stop.__index__()
        if (first < 0) == (last < 0) and first < last:
            raise self._outside(f"slice {_text(k)}", d, first, last)

    def _index(self, k: Any, d: int) -> Any:
        """A single index: an int or a register."""
        if isinstance(k, VirtualRegister):
            self._no_dynamic_partition(d)
            return k
        try:
            index = k.__index__()
        except (AttributeError, TypeError, NkiValidationError):  # arrays and tensors have it
            hint = "; // divides ints to an int" if isinstance(k, float) else ""
            message = (
                f"index {k!r} of type {type(k).__name__} on dimension {d} of {self._title()}; "
                "allowed are ints, slices, Ellipsis, nl.ds and registers (tensors index through "
                f".ap(vector_offset=...), .select or .vector_select){hint}"
            )
            raise invalid(message, code="index-kind") from None
        n = self.shape[d]
        if not -n <= index < n:
            raise self._outside(f"index {index}", d, index, index + 1)
        self._guard(d, True)
        return index % n

    def _bound(self, value: Any, d: int) -> int:
        """An int that a slice, `nl.ds` or `.select` begins or ends with."""
        try:
            return int(value.__index__())
        except (AttributeError, TypeError):  # arrays have the method
            hint = "; // divides ints to an int" if isinstance(value, float) else ""
            message = (
                f"{value!r} of type {type(value).__name__} as bound on dimension {d} of "
                f"{self._title()}; allowed are ints{hint}"
            )
            raise invalid(message, code="index-kind") from None

    def _expand(self, key: tuple) -> tuple:
        given = sum(1 for k in key if k is not Ellipsis)
        if len(key) - given > 1:
            raise invalid("an index can hold only one Ellipsis", code="index-kind")
        if given > len(self.shape):
            message = f"{given} indices for {len(self.shape)} dimensions of {self._title()}"
            raise invalid(message, code="index-count", got=given, most=len(self.shape))
        fill = (FULL,) * (len(self.shape) - given)
        for i, k in enumerate(key):
            if k is Ellipsis:
                return key[:i] + fill + key[i + 1 :]
        return key + fill


def _text(k: slice) -> str:
    parts = ["" if bound is None else str(bound) for bound in (k.start, k.stop)]
    return ":".join(parts if k.step is None else [*parts, str(k.step)])
