"""Arguments that a kernel uses as tensors and that aren't: lists, numbers, None.

Only arrays become tensors; a list of arrays is a list of tensors in the kernel, the same on every
rank. A kernel that asks such a value for its `.shape` fails with Python's AttributeError, which
speaks of the list and not of the launch.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from nki_dist.errors import NoSuchAttribute
from nki_dist.isa.described import described, several
from nki_dist.language.tensor import NkiTensor

_CONTAINERS = (list, tuple)


def explained(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """What to raise for an AttributeError or TypeError that went through a kernel.

    An AttributeError that an argument has no attribute of a tensor becomes a NoSuchAttribute, which
    is an AttributeError, too. A TypeError that mentions lists is told which arguments are some.
    """
    named = _named(function, args, kwargs)
    if isinstance(error, AttributeError):
        for name, value in named.items():
            if hasattr(NkiTensor, error.name or "") and _meant(error, name, value):
                return NoSuchAttribute(
                    f"the kernel asks its argument {name} for .{error.name}, as of a tensor, but "
                    f"{name} is {described(value)}{_remedy(name, value)}",
                    code="argument-no-tensor",
                )
        return error
    lists = [name for name, value in named.items() if several(value)]
    if lists and sys.version_info >= (3, 11) and any(c.__name__ in str(error) for c in _CONTAINERS):
        for name in lists:
            value = named[name]
            error.add_note(f"argument {name} is {described(value)}{_remedy(name, value)}")
    return error


def _meant(error: AttributeError, name: str, value: Any) -> bool:
    """Whether the object that lacks the attribute is this argument, and no equal one.

    Numbers, texts and None are one object wherever they come from: for them the line has to say so.
    """
    if value is not error.obj:
        return False
    if isinstance(value, (list, dict, set)):
        return True
    frames = traceback.extract_tb(error.__traceback__, -1)
    return any(re.search(rf"\b{name}\s*\.\s*{error.name}\b", f.line or "") for f in frames)


def _named(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments by name."""
    found: dict[str, Any] = {}
    bound = inspect.signature(function).bind(*args, **kwargs)
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found.update({f"{name}[{n}]": v for n, v in enumerate(value)})
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found.update(value)
        else:
            found[name] = value
    return found


def _remedy(name: str, value: Any) -> str:
    if several(value):
        return (
            f": the kernel can take one, {name}[0]. In a world, nki.per_rank([...]) in place of "
            "the list gives every rank its own array"
        )
    if isinstance(value, _CONTAINERS):
        return f", known when the kernel is compiled; pass np.array({name}, dtype=np.float32)"
    return "; only arrays (NumPy, torch, jax) become tensors"
