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
    result = dynamic.of(dynamic.source)
    result.stride = rescale(dynamic.stride, old, new, "stride of the indirect dimension")
    for name in ("within", "extent"):
        if places := getattr(dynamic, name):
            origin, size, period = places
            origin = rescale(origin, old, new, "offset")
            setattr(result, name, (origin, size, rescale(period, old, new, "stride")))
    return result


def infer(shape: tuple[int, ...], total: int) -> Dims:
    """Fill in one -1 so that the product is `total`."""
    given = prod(n for n in shape if n != -1)
    if shape.count(-1) > 1:
        raise invalid(f"shape {shape} has more than one -1", code="reshape", got=shape)
    if -1 in shape:
        if given == 0 or total % given:
            raise invalid(f"{total} elements can't be split as {shape}", code="reshape", got=total)
        shape = tuple(total // given if n == -1 else n for n in shape)
    if prod(shape) != total:
        message = f"shape {shape} has {prod(shape)} elements, expected {total}"
        raise invalid(message, code="reshape", got=prod(shape), allowed=total)
    return shape
