"""Arrays of NumPy, torch and jax: taking them in, giving results back in kind.

Invariant: importing this package imports neither torch nor jax, and nothing here changes a value's
dtype; what NKI has no type for is refused by whoever looks the dtype up.

Not modelled: devices. Data is on the host.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.frameworks import jax_arrays, numpy_arrays, torch_tensors
from nki_dist.frameworks.remedies import remedy

__all__ = [
    "LIBRARIES",
    "Framework",
    "describe",
    "like",
    "plain",
    "remedy",
    "to_numpy",
    "uncompiled",
    "without_derivative",
    "write_back",
]

LIBRARIES: Final = frozenset({"torch", "jax"})
"""Modules without which arguments are NumPy arrays."""

plain = numpy_arrays.plain
uncompiled = torch_tensors.uncompiled
without_derivative = torch_tensors.without_derivative


class Framework(Protocol):
    """What the launcher needs to know about an array library: a module of this package."""

    name: str
    """`"numpy"`, `"torch"` or `"jax"`."""

    def owns(self, value: Any) -> bool:
        """Whether a value is an array of this library."""

    def to_numpy(self, value: Any) -> np.ndarray:
        """The value as a NumPy array, sharing memory where possible."""

    def like(self, array: np.ndarray) -> Any:
        """A NumPy array as a value of this library."""

    def write_back(self, value: Any, array: np.ndarray) -> None:
        """Copy data into a value in place, or raise LaunchError."""


_FRAMEWORKS: Final[tuple[Framework, ...]] = (numpy_arrays, torch_tensors, jax_arrays)


def describe(value: Any) -> Framework | None:
    """The library an array belongs to; None for anything that isn't an array."""
    for framework in _FRAMEWORKS:
        if framework.owns(value):
            return framework
    return None


def _owner(value: Any) -> Framework:
    framework = describe(value)
    if framework is None:
        names = ", ".join(each.name for each in _FRAMEWORKS)
        raise LaunchError(
            f"expected an array of {names}, got a {type(value).__name__}", code="array-kind"
        )
    return framework


def to_numpy(value: Any) -> np.ndarray:
    """An array of any framework as a NumPy array, sharing memory where possible.

    Raises:
        LaunchError: not an array, or one without data on the host.
        NkiValidationError: NumPy has no dtype for it.
    """
    return _owner(value).to_numpy(value)


def like(framework: Framework | None, array: np.ndarray) -> Any:
    """A result in the caller's framework (None, a kernel without inputs: NumPy).

    Packed types are unsigned integers in torch and jax, which have nothing that would say more.

    Raises:
        LaunchError: the framework has no such dtype.
    """
    if framework is None or framework.name == "numpy":
        return array
    return framework.like(numpy_arrays.plain(array))


def write_back(value: Any, array: np.ndarray) -> None:
    """Copy what a kernel wrote to an input into the caller's array.

    Raises:
        LaunchError: the caller's array can't be changed.
    """
    _owner(value).write_back(value, array)
