"""Steps that do nothing but call a NumPy function with views of an instruction's operands.

What such a step does can be said without a core, and done on another core, or elsewhere in the same
storages: by the same function, with views that lie there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction, Storage
from nki_dist.runtime.facts import accesses

CONSTANTS = (int, float, bool, type(None), type(...), np.generic)


class View(NamedTuple):
    """An array as it lies in its storage; offset and strides in bytes."""

    storage: Storage
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]

    def of(self, kit: Kit) -> np.ndarray:
        """The array in a core's memory."""
        buffer = kit.bytes_of(self.storage)
        return np.ndarray(self.shape, self.dtype, buffer, self.offset, self.strides)


class Call(NamedTuple):
    """A function and its arguments; some are views."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def call_of(i: Instruction, step: Step, kit: Kit) -> Call | None:
    """What the step of an instruction does, as others can do it; None if it is more than a call."""
    if type(step) is not partial or step.keywords or not _belongs_to_nobody(step.func):
        return None
    storages = [(a.storage, kit.bytes_of(a.storage)) for a in accesses(i)]
    arguments: list[Any] = []
    for value in step.args:
        if type(value) is np.ndarray:
            view = _view(value, storages)
            if view is None:
                return None
            arguments.append(view)
        elif isinstance(value, CONSTANTS):
            arguments.append(value)
        else:
            return None
    return Call(step.func, tuple(arguments))


def begun_sooner(step: Step) -> Step:
    """The same step; a copy between equal types as the store that it is, which saves a call."""
    if type(step) is not partial or step.func is not np.copyto or step.keywords:
        return step
    return copying(*step.args) if len(step.args) == 2 else step


def copying(dst: Any, src: Any) -> Step:
    """A step that does `np.copyto(dst, src)`."""
    if type(dst) is type(src) is np.ndarray and dst.dtype is src.dtype:
        return partial(dst.__setitem__, ..., src)
    return partial(np.copyto, dst, src)


def are_apart(i: Instruction) -> bool:
    """Whether each tensor operand is in a storage of its own."""
    numbers = [a.storage.number for a in accesses(i)]
    return len(numbers) == len(set(numbers))


def _belongs_to_nobody(function: Any) -> bool:
    """Whether a function keeps nothing between calls that a core could miss or share."""
    return function is np.copyto or isinstance(function, np.ufunc)


def _view(array: np.ndarray, storages: list[tuple[Storage, np.ndarray]]) -> View | None:
    """Where in one of the storages an array lies; None if it lies elsewhere."""
    address = _address(array)
    for storage, buffer in storages:
        offset = address - _address(buffer)
        if 0 <= offset < max(len(buffer), 1):
            return View(storage, array.shape, array.dtype, offset, array.strides)
    return None


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
