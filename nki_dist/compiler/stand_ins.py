"""Arguments that a kernel uses as tensors and that aren't: lists, numbers, None.

Only arrays become tensors; a list of arrays is a list of tensors in the kernel, the same on every
rank. A kernel that asks such a value for its `.shape` fails with Python's AttributeError, which
speaks of the list and not of the launch.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable
from typing import Any

from nki_dist.errors import NkiValidationError, NoSuchAttribute
from nki_dist.isa.described import described, several
from nki_dist.language.tensor import NkiTensor
from nki_dist.program.pytree import flatten

_CONTAINERS = (list, tuple)


def explained(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """What to raise for an AttributeError or TypeError that went through a kernel.

    An AttributeError that an argument has no attribute of a tensor becomes a NoSuchAttribute, which
    is an AttributeError, too. A TypeError of lists, from a line that has an argument which is one,
    becomes an NkiValidationError: Python's text doesn't say what should have been passed.
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
    elif re.search("list|tuple|sequence", str(error)):
        for name, value in named.items():
            if isinstance(value, _CONTAINERS) and _in_line(error, rf"\b{re.escape(name)}\b"):
                return NkiValidationError(
                    f"the kernel's argument {name} is {described(value)}{_remedy(name, value)}. As "
                    f"it is, Python says: {error}",
                    code="argument-no-tensor",
                )
    return error


def _meant(error: AttributeError, name: str, value: Any) -> bool:
    """Whether the object that lacks the attribute is this argument, and no equal one.

    Numbers, texts and None are one object wherever they come from: for them the line has to say so.
    """
    if value is not error.obj:
        return False
    if isinstance(value, (list, dict, set)):
        return True
    return _in_line(error, rf"\b{re.escape(name)}\s*\.\s*{error.name}\b")


def _in_line(error: Exception, pattern: str) -> bool:
    """Whether the line that raised has this."""
    frames = traceback.extract_tb(error.__traceback__, -1)
    return any(re.search(pattern, f.line or "") for f in frames)


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
    if isinstance(value, _CONTAINERS) and not any(
        isinstance(v, NkiTensor) for _, v in flatten(value)[0]
    ):
        return f", known when the kernel is compiled; pass np.array({name}, dtype=np.float32)"
    return "; only arrays (NumPy, torch, jax) become tensors"
