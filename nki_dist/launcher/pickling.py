"""Kernels as pickles: by module and qualified name, as functions are, with their settings.

`pickle` stores a function as the name under which it is found, but under the name of a decorated
one it finds the kernel. So a kernel says itself where it is: what is stored is the name, its grid,
where it runs, what it is checked against, and so on. Whoever loads it imports the module.

cloudpickle, and so Ray, stores functions by value where they can't be imported, and kernels with
them. They are left to do so: local kernels and those of `__main__` travel that way.
"""

from __future__ import annotations

import functools
import importlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from nki_dist.errors import LaunchError

_BY_VALUE: Final = ("cloudpickle", "dill")
# The function and what `functools.update_wrapper` copies from it.
_OF_THE_FUNCTION: Final = frozenset({"fn", "__wrapped__", *functools.WRAPPER_ASSIGNMENTS})

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def stores_by_value() -> bool:
    """Whether the caller's caller is a pickler that stores functions by value.

    A pickler written in C has no frame of its own; then it is who called it that counts.
    """
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "pickle":
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return any(part in _BY_VALUE for part in module.split("."))


def reduced(kernel: Any) -> Reduced:
    """What `__reduce_ex__` returns for a kernel that is stored by name.

    Raises:
        LaunchError: its function can't be found by its name.
    """
    kind, fn = type(kernel), kernel.fn
    state = {k: v for k, v in vars(kernel).items() if k not in _OF_THE_FUNCTION}
    scheduled = state.pop("_scheduled", None)
    if scheduled is not None:
        return _scheduled, (*scheduled, state)
    if isinstance(fn, types.MethodType):
        return _bound, (fn.__self__, fn.__func__.__name__, state)
    module, path = fn.__module__, getattr(fn, "__qualname__", type(fn).__name__)
    if "<locals>" in path:
        outer = path.rpartition(".<locals>.")[0]
        raise _not_found(fn, f"it is defined inside {outer}, where nothing else can find it")
    try:
        found = _function(module, path)
    except (ImportError, AttributeError):
        found = None
    if found is not fn:
        raise _not_found(fn, f"{module}.{path} is something else, or nothing")
    return _named, (kind, module, path, state)


def _not_found(fn: Any, why: str) -> LaunchError:
    code = getattr(fn, "__code__", None)
    return LaunchError(
        f"kernel {getattr(fn, '__name__', fn)!r} can't be pickled: {why}. A pickle holds the "
        "module and the name of a kernel, so define it at the top of a module",
        location=f"{code.co_filename}:{code.co_firstlineno}" if code else None,
        code="kernel-pickle",
    )


def _function(module: str, path: str) -> Any:
    found = operator.attrgetter(path)(importlib.import_module(module))
    return getattr(found, "fn", found)


def _named(kind: type, module: str, path: str, state: dict[str, Any]) -> Any:
    """The kernel again, in a process that may be another."""
    kernel: Any = object.__new__(kind)
    fn = _function(module, path)
    vars(kernel).update(state, fn=fn)
    functools.update_wrapper(kernel, fn)
    return kernel


def _bound(instance: Any, name: str, state: dict[str, Any]) -> Any:
    return getattr(instance, name).but(**state)


def _scheduled(base: Any, edges: Any, state: dict[str, Any]) -> Any:
    return base.with_schedule(edges).but(**state)
