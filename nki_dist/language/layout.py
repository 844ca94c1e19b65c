"""Arithmetic on shapes, strides and offsets, free of any tensor.

Strides count elements. Everything here is exact or raises; nothing copies data.
"""

from __future__ import annotations

from math import prod

from nki_dist.dtypes import DType
from nki_dist.errors import invalid
from nki_dist.program import Dynamic

Dims = tuple[int, ...]


def rescale(count: int, old: DType, new: DType, what: str) -> int:
    """As many elements of another dtype, by bytes."""
    total = count * old.itemsize
    if total % new.itemsize:
        message = f"{what} {count} in {old} is no whole number of {new} elements"
        raise invalid(message, code="reinterpret", got=count)
    return total // new.itemsize


def rescaled(dynamic: Dynamic, old: DType, new: DType) -> Dynamic:
    """The run-time part of an access that is read as another dtype."""
    if old.itemsize == new.itemsize:
        return dynamic
    made = dynamic.of(dynamic.source)
    made.stride = rescale(dynamic.stride, old, new, "stride of the indirect dimension")
    for name in ("within", "extent"):
        if places := getattr(dynamic, name):
            origin, size, period = places
            origin = rescale(origin, old, new, "offset")
            setattr(made, name, (origin, size, rescale(period, old, new, "stride")))
    return made


def is_contiguous(shape: Dims, strides: Dims) -> bool:
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def infer(shape: tuple[int, ...], total: int) -> Dims:
    """Fill in one -1 so that the product is `total`."""
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) > 1:
        raise invalid(f"shape {shape} has more than one -1", code="reshape", got=shape)
    if -1 in shape:
        if known == 0 or total % known:
            raise invalid(f"{total} elements can't be split as {shape}", code="reshape", got=total)
        shape = tuple(total // known if n == -1 else n for n in shape)
    if prod(shape) != total:
        message = f"shape {shape} has {prod(shape)} elements, expected {total}"
        raise invalid(message, code="reshape", got=prod(shape), allowed=total)
    return shape


def reshape_strides(shape: Dims, strides: Dims, new: Dims) -> Dims | None:
    """Strides of the same elements in the same order under another shape, None if there are none.

    Both shapes are walked from the left, matching groups of dimensions of equal size; a group of
    the old shape must be contiguous within itself.
    """
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    at = 0
    dims = list(new)
    position = 0
    while position < len(dims):
        if dims[position] == 1:
            result.append(0)
            position += 1
            continue
        if at >= len(old):
            return None
        first = position
        size_old, size_new = old[at][0], dims[position]
        last = at
        position += 1
        while size_old != size_new:
            if size_old < size_new:
                last += 1
                if last >= len(old):
                    return None
                if old[last - 1][1] != old[last][1] * old[last][0]:
                    return None
                size_old *= old[last][0]
            else:
                if position >= len(dims):
                    return None
                size_new *= dims[position]
                position += 1
        step = old[last][1]
        group = []
        for n in reversed(dims[first:position]):
            group.append(step)
            step *= n
        result.extend(reversed(group))
        at = last + 1
    # The stride of a size-1 dimension never matters; give it the value a contiguous layout has,
    # so that indirect accesses through it scale as the shape suggests.
    for i in range(len(dims) - 1, -1, -1):
        if dims[i] == 1:
            below = result[i + 1] * dims[i + 1] if i + 1 < len(dims) else 1
            result[i] = below
    return tuple(result)
