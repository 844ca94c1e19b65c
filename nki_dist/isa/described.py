"""What messages say of a value that should have been a tensor, or another value."""

from __future__ import annotations

import reprlib
import sys
from difflib import get_close_matches
from types import FunctionType
from typing import Any

from nki_dist.errors import NkiValidationError
from nki_dist.isa.handle import NkiInstruction
from nki_dist.program import Access


def described(value: Any) -> str:
    """The value in short: arrays of any library by their shape, lists of tensors by length."""
    if value is None:
        return "None"
    kind, shape = type(value), getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"a {kind.__module__.partition('.')[0]} {kind.__name__} of shape {tuple(shape)}"
    if isinstance(value, NkiInstruction):
        return f"what nisa.{value.instruction.opcode} returned, which is no tensor"
    if isinstance(value, FunctionType) or hasattr(value, "signature"):
        return f"the function {getattr(value, '__name__', value)}, which wasn't called"
    if several(value):
        return f"a {kind.__name__} of {len(value)} tensor{'s' * (len(value) != 1)}"
    short = reprlib.Repr()
    short.maxlevel, short.maxlist, short.maxtuple = 2, 4, 4
    return f"{short.repr(value)} of type {kind.__name__}"


def advice(value: Any) -> str:
    """A sentence on how such a value becomes a tensor, "" where there is nothing to say."""
    if isinstance(value, NkiInstruction):
        return ". Instructions write to their dst: use the tensor that was passed as dst"
    if several(value):
        return (
            ". Take one by its index; for a tensor of its own on every rank of a world, launch "
            "with nki.per_rank([...]) in place of the list"
        )
    if isinstance(value, (list, tuple)):
        return ". Lists stay lists: launch the kernel with np.array(...) of it"
    if isinstance(getattr(value, "shape", None), tuple):
        return ". Arrays become tensors when they are arguments of the kernel that is launched"
    return ""


def wrong_value(
    name: str, value: Any, allowed: str, *, code: str, hint: str | None = None
) -> NkiValidationError:
    """The error of an argument that is no tensor and isn't what it may be."""
    message = f"{name}={value!r}; allowed: {allowed}"
    return NkiValidationError(message, code=code, hint=hint, numbers={"got": value})


def absent(module: str, name: str, otherwise: str) -> AttributeError:
    """The error of a name that a module hasn't, with what was probably meant.

    `obj` isn't set, for which interpreters would print their own suggestion behind ours.
    """
    near = get_close_matches(name, dir(sys.modules[module]), 1, 0.75)
    said = f"Did you mean: {near[0]!r}?" if near else otherwise
    return AttributeError(f"module {module!r} has no attribute {name!r}. {said}", name=name)


def several(value: Any) -> bool:
    """Whether it is a list or tuple of tensors."""
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(isinstance(v, Access) for v in value)
    )
