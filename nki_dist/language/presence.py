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

    A parameter, a captured variable or a field may; so may a local variable that is assigned in
    several places. Of a local variable with one assignment, the tensor is that assignment's value.
    """
    code = frame.f_code
    names = [name for name, value in frame.f_locals.items() if value is tensor]
    if not names:
        return True  # a field, an item, the result of a call
    given = set(_parameters(code)) | set(code.co_freevars)
    return any(name in given or _assignments(code, name) != 1 for name in names)


def _parameters(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[:count]


def _assignments(code: CodeType, name: str) -> int:
    return sum(
        1 for i in dis.get_instructions(code) if i.opname.startswith("STORE_") and i.argval == name
    )
