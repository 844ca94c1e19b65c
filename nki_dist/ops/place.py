"""Where an array will be: as NumPy's views, but of memory that isn't there yet."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Space: TypeAlias = "tuple[str, int | str]"
"""What a place is in: ("storage", number), ("operand", number), ("scratch", 0), and so on."""

Key: TypeAlias = "int | slice | EllipsisType | None"


_new = tuple.__new__


class _Place(NamedTuple):
    space: Space
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


class Place(_Place):
    """An array as it lies in a space. It is a tuple of what follows, as a program has many.

    Attributes:
        space: what it lies in.
        offset: bytes from where that begins to element 0.
        shape: elements along each dimension.
        strides: bytes from one element to the next, along each.
        dtype: of the elements.
    """

    __slots__ = ()

    def __new__(
        cls,
        space: Space,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: Any,
    ) -> Place:
        return _new(cls, (space, offset, shape, strides, np.dtype(dtype)))

    def __getnewargs__(self) -> tuple[Any, ...]:  # `len` is an array's
        return self.space, self.offset, self.shape, self.strides, self.dtype

    # ---- as of an array -------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def T(self) -> Place:
        return self.transpose(tuple(reversed(range(self.ndim))))

    def transpose(self, *axes: Any) -> Place:
        """The same elements with dimensions in another order."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes
        shape, strides = (tuple([of[n] for n in order]) for of in (self.shape, self.strides))
        return Place(self.space, self.offset, shape, strides, self.dtype)

    def view(self, dtype: Any) -> Place:
        """The same bits as another type of the same size."""
        assert np.dtype(dtype).itemsize == self.dtype.itemsize, (self.dtype, dtype)
        return Place(self.space, self.offset, self.shape, self.strides, dtype)

    def __getitem__(self, key: Key | tuple[Key, ...]) -> Place:  # type: ignore[override]
        keys = list(key) if isinstance(key, tuple) else [key]
        given = sum(1 for k in keys if k is not None and k is not Ellipsis)
        rest: list[Key] = [slice(None)] * (self.ndim - given)
        at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
        keys[at : at + 1] = rest
        offset, shape, strides = self.offset, [], []
        dimensions = iter(zip(self.shape, self.strides, strict=True))
        for k in keys:
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            n, stride = next(dimensions)
            if isinstance(k, slice):
                chosen = range(n)[k]
                offset += chosen.start * stride if len(chosen) else 0
                shape.append(len(chosen))
                strides.append(chosen.step * stride)
            else:
                offset += range(n)[k] * stride  # type: ignore[index]
        return Place(self.space, offset, tuple(shape), tuple(strides), self.dtype)

    def reshape(self, *shape: Any) -> Place:
        """The same elements, in the same order, over other dimensions.

        Raises:
            ValueError: only a copy could have that shape.
        """
        new_shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if -1 in new_shape:
            rest = self.size // max(-prod(new_shape), 1)
            new_shape = tuple([rest if n == -1 else n for n in new_shape])
        strides = reshaped_strides(self.shape, self.strides, new_shape, self.dtype.itemsize)
        if strides is None:
            raise ValueError(f"{self} has no view of shape {new_shape}")
        return Place(self.space, self.offset, new_shape, strides, self.dtype)

    # ---- where it lies --------------------------------------------------------------------------

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other."""
        return follow(self.shape, self.strides, self.dtype.itemsize)

    def span(self) -> tuple[int, int]:
        """First byte, and the one after the last."""
        low = high = self.offset
        for n, stride in zip(self.shape, self.strides):
            if n == 0:
                return self.offset, self.offset
            low, high = low + min((n - 1) * stride, 0), high + max((n - 1) * stride, 0)
        return low, high + self.dtype.itemsize

    def meets(self, other: Place) -> bool:
        """Whether the two may have bytes in common."""
        if self.space != other.space:
            return False
        (low, high), (first, last) = self.span(), other.span()
        return low < last and first < high

    def moved(self, space: Space, offset: int) -> Place:
        """What lies like this in another space, so many bytes further."""
        _, at, shape, strides, dtype = self
        return _new(Place, (space, at + offset, shape, strides, dtype))

    def over(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Place:
        """From the same first byte, elements that lie as told."""
        return Place(self.space, self.offset, shape, strides, dtype)

    def __repr__(self) -> str:
        return f"{self.space[0]} {self.space[1]}{self.within}"

    @property
    def within(self) -> str:
        """Where it lies in its space, as text: +offset[elements:stride, ...] dtype."""
        dims = ", ".join(f"{n}:{s}" for n, s in zip(self.shape, self.strides))
        return f"+{self.offset}[{dims}] {self.dtype}"


def follow(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> bool:
    """Whether elements, `unit` apart, follow each other."""
    need = unit
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != need:
            return 0 in shape
        need *= n
    return True


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], new_shape: tuple[int, ...], unit: int
) -> tuple[int, ...] | None:
    """Strides of the same elements, in the same order, over other dimensions; None if none do it.

    Of dimensions of size 1, whose strides never matter, they are those of contiguous elements
    `unit` apart, so that what is addressed through them at run time scales as the shape suggests.
    """
    if prod(shape) != prod(new_shape):
        raise ValueError(f"{prod(shape)} elements don't have shape {new_shape}")
    if prod(shape) == 0:
        return tuple([unit] * len(new_shape))
    return split(joined(shape, strides), new_shape, unit)


def split(
    merged: list[tuple[int, int]], new_shape: tuple[int, ...], unit: int
) -> tuple[int, ...] | None:
    """The same of dimensions as `joined` gives them, which it empties."""
    found: list[int] = []
    left, stride = 1, unit
    for n in reversed(new_shape):
        if left == 1 and n > 1 and merged:
            left, stride = merged.pop()
        if left % n:
            return None
        found.append(stride)
        left, stride = left // n, stride * n
    return tuple(reversed(found))


def joined(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Dimensions of more than one element, as (elements, stride); those that follow each other in
    memory become one."""
    found: list[tuple[int, int]] = []
    for n, stride in zip(shape, strides):
        if n == 1:
            continue
        if found and found[-1][1] == n * stride:
            found[-1] = found[-1][0] * n, stride
        else:
            found.append((n, stride))
    return found
