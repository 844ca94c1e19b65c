"""Results that weren't computed, and knowing them again when they come back as arguments.

A program whose kernels aren't carried out gets arrays of the right shape and dtype. They hold
zeros: as indices zeros are inside every tensor, and as lengths of loops they end at once. But what
a kernel makes of them says nothing about the kernel, so arguments that come from them are known
again, by type (NumPy's functions keep it), by what a view was made of, or by identity. Torch and
jax keep none of these, so all their arrays are doubted once there is such a result.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist import frameworks
from nki_dist.compiler.compiled import Compiled
from nki_dist.forks import Shared
from nki_dist.launcher.binding import BoundArguments, inputs_where
from nki_dist.launcher.results import as_declared, returned_as
from nki_dist.program import Access


class Hollow(np.ndarray):
    """An array whose contents nobody computed; so are those that NumPy makes of it."""

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _hollow(super().__array_function__(function, types, args, kwargs))

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()  # elsewhere nobody knows what this type means


def _hollow(result: Any) -> Any:
    if isinstance(result, np.ndarray):
        return result.view(Hollow)
    if type(result) in (tuple, list):
        return type(result)(map(_hollow, result))
    return result


class Hollows(Shared):
    """All such arrays of a process; for any number of threads."""

    def __init__(self) -> None:
        super().__init__()
        # By identity: what holds the memory of such arrays, and arguments that kernels wrote to.
        self._doubted: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.given = False  # whether the program holds something that wasn't computed

    def results(self, compiled: Compiled, bound: BoundArguments) -> Any:
        """What a kernel returns to a rank.

        Inputs that it doesn't write come back as they are.

        Raises:
            LaunchError: the rank's framework can't hold it.
        """
        written = set(compiled.written_inputs)
        doubted = self.unknown([bound])

        def read(leaf: Access) -> np.ndarray:
            s = leaf.storage
            if s.role == "constant":
                return as_declared(np.frombuffer(s.data or b"", np.uint8), leaf)
            if s.role == "input" and s.index not in written | doubted:
                data = np.ascontiguousarray(bound.arrays[s.index]).reshape(-1)
                return as_declared(data.view(np.uint8), leaf)
            zeros = np.zeros(leaf.shape, leaf.dtype.dtype)
            self._doubt(zeros)
            return zeros.view(Hollow) if bound.framework is None else zeros

        return returned_as(compiled, bound, read)

    def changed(self, compiled: Compiled, bound: BoundArguments) -> None:
        """Doubt what the kernel writes to, after seeing that it may.

        Raises:
            LaunchError: an array that the kernel writes can't be changed.
        """
        for index in compiled.written_inputs:
            original, signature = bound.originals[index], bound.signatures[index]
            data = bound.arrays[index].tobytes()
            same = np.ndarray(signature.shape, signature.dtype.storage, data)
            frameworks.write_back(original, same)
            self._doubt(_owner(original))

    def _doubt(self, array: Any) -> None:
        self.given = True
        with self._lock:
            self._doubted[id(array)] = array

    def unknown(self, bound: Sequence[BoundArguments]) -> set[int]:
        """Indices of the inputs whose contents aren't known on some rank."""
        return inputs_where(bound, self._is_doubted)

    def _is_doubted(self, array: Any) -> bool:
        if not isinstance(array, np.ndarray):
            return self.given
        while array is not None:
            with self._lock:
                doubted = self._doubted.get(id(array))
            if doubted is array or isinstance(array, Hollow):
                return True
            array = _base(array)
        return False


def _base(array: Any) -> Any:
    """The array that a view was made of."""
    base = array.base if isinstance(array, np.ndarray) else getattr(array, "_base", None)
    return base if base is None or frameworks.describe(base) is not None else None


def _owner(array: Any) -> Any:
    while (base := _base(array)) is not None:
        array = base
    return array
