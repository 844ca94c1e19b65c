"""jax arrays as kernel arguments and results, without importing jax.

Invariant: results are copies, since a jax array must never change and the simulator reuses memory.

Inside jax transformations there is no data to run on; `callback` is how a launch becomes part of
the computation (nki_dist.launcher.traced).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError

name = "jax"


def _jax() -> ModuleType | None:
    """jax, if the program has imported it: nobody can hold a jax array otherwise."""
    return sys.modules.get("jax")


def owns(value: Any) -> bool:
    array = getattr(_jax(), "Array", None)  # missing while jax is still being imported
    return array is not None and isinstance(value, array)


def imported() -> bool:
    return _jax() is not None


def is_tracer(value: Any) -> bool:
    """Whether a value is a placeholder of a jax transformation."""
    return owns(value) and isinstance(value, _jax().core.Tracer)  # type: ignore[union-attr]


def description(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """What jax knows of an array before it has one."""
    return _jax().ShapeDtypeStruct(shape, dtype)  # type: ignore[union-attr]


def callback(name: str, function: Callable[..., Any], results: Any, tracers: Sequence[Any]) -> Any:
    """Placeholders for what a function of NumPy arrays will return when jax runs it.

    Args:
        name: of the kernel.
        function: called with an array for each tracer; under vmap, once for each element.
        results: descriptions of the arrays it returns.
        tracers: its arguments.

    Raises:
        LaunchError: here or later, when jax differentiates them.
    """
    jax: Any = _jax()

    @jax.custom_jvp  # type: ignore[untyped-decorator]
    def launched(*arrays: Any) -> Any:
        return jax.pure_callback(function, results, *arrays, vmap_method="sequential")

    @launched.defjvp  # type: ignore[untyped-decorator]
    def derivative(primals: Any, tangents: Any) -> Any:
        raise LaunchError(
            f"jax differentiates kernel {name}, whose derivative nobody gave; call the kernel in a "
            "function under jax.custom_vjp that has a backward (defvjp), or put "
            "jax.lax.stop_gradient around its inputs",
            code="no-derivative",
            hint="write the gradient as a kernel, too: docs/frameworks.md has one",
        )

    return launched(*tracers)


def to_numpy(value: Any) -> np.ndarray:
    """The array's data, read-only and without a copy where jax allows it.

    Raises:
        LaunchError: the array is a placeholder of a jax transformation, has been deleted (donated),
            or holds no numbers (random keys).
    """
    if is_tracer(value):
        raise LaunchError(
            f"a world was run inside a jax transformation with a traced {value.aval}; run it "
            "outside jax.jit and jax.grad, where arrays hold data (kernels called directly can be "
            "inside)",
            code="array-without-data",
        )
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError) as error:
        raise LaunchError(
            f"a jax array of {value.aval} has no data to run on: {error}", code="array-without-data"
        ) from None


def like(array: np.ndarray) -> Any:
    """A jax array with the same dtype and values.

    Raises:
        LaunchError: jax would convert the dtype.
    """
    result = _jax().numpy.array(array, copy=True)  # type: ignore[union-attr]
    if result.dtype != array.dtype:
        raise LaunchError(
            f"jax turns {array.dtype} into {result.dtype}; pass NumPy arrays instead",
            code="framework-dtype",
        )
    return result


def write_back(value: Any, array: np.ndarray) -> None:
    """Always raises LaunchError: jax arrays can't be changed."""
    raise LaunchError(
        f"the kernel writes to an input of shape {tuple(value.shape)}, dtype {array.dtype}, that "
        "is a jax array, and those can't change; return the tensor from the kernel, or pass a "
        "NumPy array",
        code="input-read-only",
    )
