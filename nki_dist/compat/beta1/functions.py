"""`nl` functions on tiles with `mask=` and `dtype=`, made from those of the current language.

Each also stands for its operator (`op=nl.add`), as the function it is made from.

Follows: `nki.language` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki_dist import language as current
from nki_dist.compat.beta1 import lower
from nki_dist.compat.beta1.tile import Tile
from nki_dist.errors import NkiValidationError
from nki_dist.language.older import OPERATORS
from nki_dist.language.tensor import NkiTensor


def named(function: Any, original: Any) -> Any:
    """A function of Beta 1 with the name and description of today's."""
    function.__name__ = function.__qualname__ = original.__name__
    function.__doc__ = f"{original.__doc__}\n\n`mask` limits what is computed."
    if hasattr(original, "nki_op"):
        function.nki_op = original.nki_op
    return function


def operator_name(op: Any) -> Any:
    """The name of an operator, given as a NumPy or `nl` function; None stays None."""
    name = getattr(op, "nki_op", None) or getattr(op, "__name__", op)
    return OPERATORS.get(name, name)


def refused(name: str, advice: str) -> Callable[..., Any]:
    """A function that Beta 1 documents and that can't be given its meaning here."""

    def function(*args: Any, **given: Any) -> Any:
        raise NkiValidationError(f"{name} isn't supported; {advice}", code="not-simulated")

    return function


def unary(name: str) -> Callable[..., Any]:
    """A function of one tile."""
    original = getattr(current, name)

    def function(x: Any, *, dtype: Any = None, mask: Any = None, **hints: Any) -> Any:
        return lower.apply(name, lambda t: original(t, dtype=dtype), (x,), mask)

    return named(function, original)


def binary(name: str) -> Callable[..., Any]:
    """A function of two tiles, or a tile and a number."""

    def function(x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **hints: Any) -> Any:
        return lower.binary(name, x, y, dtype, mask)

    return named(function, getattr(current, name))


def reduction(name: str) -> Callable[..., Any]:
    """A function along free dimensions, which needn't be the last."""
    original = getattr(current, name)

    def function(
        x: Any,
        axis: Any,
        *,
        dtype: Any = None,
        mask: Any = None,
        keepdims: bool = False,
        **hints: Any,
    ) -> Any:
        return reduced(name, x, axis, keepdims, mask, lambda t, a: original(t, a, dtype=dtype))

    return named(function, original)


def free_axes(name: str, x: Any, axis: Any) -> tuple[int, ...]:
    """The axes to reduce, sorted."""
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.shape)
    found = sorted({int(a) % rank for a in given if -rank <= int(a) < rank})
    if len(found) != len(given) or not found or found[0] == 0:
        raise NkiValidationError(
            f"nl.{name}: axis={axis!r} of a tile of shape {x.shape}; allowed: free dimensions, 1 "
            f"to {rank - 1} (dimension 0 counts partitions, see nisa.tensor_partition_reduce)",
            code="axis",
            numbers={"got": axis, "least": 1, "most": rank - 1},
        )
    return tuple(found)


def reduced(
    name: str,
    x: Any,
    axis: Any,
    keepdims: bool,
    mask: Any,
    build: Callable[[NkiTensor, tuple[int, ...]], NkiTensor],
) -> Any:
    """A reduction over any free axes: those axes are moved to the end first, as a view."""
    if not isinstance(x, Tile):
        raise NkiValidationError(f"nl.{name} of {x!r}; allowed: a tile", code="operand-kind")
    axes = free_axes(name, x, axis)
    kept = [d for d in range(x.ndim) if d not in axes]

    def run(view: NkiTensor) -> NkiTensor:
        turned = view.permute((*kept, *axes))
        return build(turned, tuple(range(len(kept), view.ndim)))

    def outer(sizes: Any) -> tuple:
        return tuple(sizes[d] for d in kept)

    tile = lower.apply(name, run, (x,), mask, outer)
    if keepdims:
        shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
        return Tile(tile.access.reshape(shape))
    return tile
