"""Telling `if optional_tensor:` from `if tensor:`.

Published kernels ask whether a tensor is there at all by its truth: of arguments, of fields of
structs, and of variables that hold None until something is loaded. A variable that can only ever
hold a tensor isn't such a question; whoever asks it means the tensor's value, which isn't known.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType, FrameType
from typing import Any


def may_be_absent(tensor: Any, frame: FrameType) -> bool:
    """Whether `tensor` might be None where `frame` asks for its truth.

    A parameter, a captured variable or a field may; so may a local variable whose value can come
    from several places. Of one with a single source, the tensor is that source's value.
    """
    code = frame.f_code
    names = [name for name, value in frame.f_locals.items() if value is tensor]
    if not names:
        return True  # a field, an item, the result of a call
    given = set(_parameters(code)) | set(code.co_freevars)
    return any(name in given or _sources(code, name) != 1 for name in names)


def may_be_left_out(tensor: Any, frame: FrameType) -> bool:
    """Whether an argument needn't be passed, so that its truth can be a question for that.

    It needn't where a parameter that holds it is None by default; nor, as far as can be known,
    where no parameter holds it, or the function can't be found by its name.
    """
    code = frame.f_code
    names = {n for n in _parameters(code) if frame.f_locals.get(n) is tensor}
    function = inspect.unwrap(_inner(frame.f_globals.get(code.co_name)))
    if not names or getattr(function, "__code__", None) is not code:
        return True
    parameters = inspect.signature(function).parameters
    return any(n not in parameters or parameters[n].default is None for n in names)


def _inner(function: Any) -> Any:
    """The function of a kernel; what isn't one, as it is."""
    return getattr(function, "fn", function)


def _parameters(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _sources(code: CodeType, name: str) -> int:
    """How many places a variable's value can come from: one per assignment.

    An assignment that code jumps to has more: `x = a if b else None` stores once.
    """
    return sum(
        2 if i.is_jump_target else 1
        for i in dis.get_instructions(code)
        if i.opname.startswith("STORE_") and i.argval == name
    )
