"""An operation: a function on arrays with its arguments, as data that is compared and printed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nki_dist.ops.function import Function, of_ufunc
from nki_dist.ops.place import Place


class Operation(NamedTuple):
    """A function and its arguments: arrays or places, numbers, registers, constants."""

    function: Function
    arguments: tuple[Any, ...]


class RegisterNumber(int):
    """The number of a register, among arguments: what is read or written is what it holds."""

    __slots__ = ()


def op(function: Function | np.ufunc, *arguments: Any) -> Operation:
    """An operation."""
    if type(function) is np.ufunc:
        function = of_ufunc(function)
    return Operation(function, arguments)


def is_array(x: Any) -> bool:
    """Whether an argument is an array, or a place where one will be."""
    return isinstance(x, (np.ndarray, Place))


def share_memory(a: Any, b: Any) -> bool:
    """Whether two arrays, or places, may have bytes in common."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and np.may_share_memory(a, b)
    return isinstance(b, Place) and a.meets(b)


def is_contiguous(a: Any) -> bool:
    """Whether the elements of an array, or of a place, follow each other in memory."""
    return bool(a.flags.c_contiguous) if isinstance(a, np.ndarray) else a.contiguous


def reshaped(a: Any, shape: tuple[int, ...]) -> Any:
    """A view of an array, or of a place, with another shape; None if there is none."""
    try:
        if isinstance(a, Place):
            return a.reshape(shape)
        view = a.view()
        view.shape = shape
    except (AttributeError, ValueError):  # NumPy's, and a place's
        return None
    return view


def part_of(
    a: Any, shape: tuple[int, ...], dtype: Any, offset: int, strides: tuple[int, ...]
) -> Any:
    """An array in the bytes of a contiguous one, or a place in those of a place."""
    if isinstance(a, Place):
        return Place(a.space, a.offset + offset, shape, strides, dtype)
    return np.ndarray(shape, dtype, a, offset, strides)
