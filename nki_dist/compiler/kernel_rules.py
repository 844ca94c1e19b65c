"""What AWS's compiler asks of a kernel's parameters, arguments and grid.

The simulator takes more: objects of any class, lists, grids of several axes. What the documentation
says is refused is an error, unless this package's own interface promises it; then it is a warning.
Kernels of Beta 1 aren't judged.

Follows: NKI migration guide, 0.2 to 0.3, "Language restrictions"; NKI language guide, "Class
Support"; LNC overview.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from nki_dist.compiler.compiled import Grid
from nki_dist.compiler.locations import is_shipped, kernel_location
from nki_dist.errors import CompileError, CompilerMayRejectWarning
from nki_dist.language.nki_object import NKIObject
from nki_dist.language.tensor import NkiTensor

# Packages whose objects the frameworks hand to kernels: dtypes, enums, functions, groups of ranks.
_KNOWN: Final = frozenset(
    {"builtins", "enum", "functools", "jax", "jaxlib", "ml_dtypes", "nki_dist", "numpy", "torch"}
)


def check_signature(function: Callable[..., Any]) -> None:
    """A kernel has no keyword-only parameters.

    Raises:
        CompileError: it has.
    """
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None and code.co_kwonlyargcount and not is_shipped(code):
        first = code.co_argcount
        names = code.co_varnames[first : first + code.co_kwonlyargcount]
        message = (
            f"{code.co_name} has keyword-only parameters ({', '.join(names)}, after `*`); AWS's "
            "compiler doesn't take them in kernels. Remove the `*` and give them default values"
        )
        raise CompileError(message, location=kernel_location(function), code="python-keyword-only")


def check_grid(function: Callable[..., Any], grid: Grid) -> Iterator[CompilerMayRejectWarning]:
    """A launch grid is one number, that of physical cores."""
    if len(grid.shape) > 1 or (grid.shape and grid.shape != (grid.cores,)):
        yield CompilerMayRejectWarning(
            f"a launch grid of shape {grid.shape}; today's NKI takes one number in the brackets, "
            "the cores of the logical core. Grids of instances are Beta 1's",
            location=kernel_location(function),
            code="grid-of-instances",
            numbers={"got": grid.shape},
        )


def check_arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[CompilerMayRejectWarning]:
    """Lists of values, and objects of classes that AWS's compiler can't import."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # built-in functions have no signature
        return
    for name, value in given.items():
        for kind, part in _judged(value):
            if kind == "list":
                yield CompilerMayRejectWarning(
                    f"argument {name} holds a list, {part!r:.60}; the migration guide says that "
                    "lists can't be arguments of kernels (published kernels take lists of tensors)",
                    location=kernel_location(function),
                    code="argument-list",
                    hint="pass a tuple",
                )
            else:
                yield CompilerMayRejectWarning(
                    f"argument {name} holds an object of {type(part).__qualname__}, which isn't a "
                    "subclass of nl.NKIObject; AWS's compiler imports no other classes",
                    location=kernel_location(function),
                    code="argument-class",
                )


def _judged(value: Any, inside: bool = False) -> Iterator[tuple[str, Any]]:
    """Parts of an argument that AWS's compiler wouldn't take.

    Lists `inside` one that is refused aren't parts of their own: pairs of ranks are thousands.
    """
    if isinstance(value, (list, tuple)):
        if isinstance(value, list) and not inside and not any(_has_tensor(v) for v in value):
            yield "list", value
            inside = True
        for part in value:
            yield from _judged(part, inside)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _judged(part)
    elif not isinstance(value, (NkiTensor, NKIObject, type)) and not callable(value):
        bases = type(value).__mro__[:-1]
        if not any(base.__module__.partition(".")[0] in _KNOWN for base in bases):
            yield "class", value


def _has_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_tensor, value))
    return isinstance(value, NkiTensor)
