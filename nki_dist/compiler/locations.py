"""Where in the user's kernel an instruction comes from.

The innermost frame outside this package is the kernel's line; kernels that the package ships count
as outside. While tracing only (code object, bytecode offset) pairs are kept, which costs a fraction
of computing a line number; lines are worked out once, when the program is finished.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import sys
import sysconfig
from bisect import bisect_right
from types import CodeType, FrameType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_COMPILER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compile.py")  # calls kernels
_SHIPPED = os.path.join(_PACKAGE, "kernels", "")  # kernels as a user would write them
_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = re.compile(r"(site|dist)-packages")  # lie below the standard library
_BETWEEN = frozenset({contextlib.__file__, functools.__file__})
# Dynamo's frames lie between a launch and its caller once something has imported torch.compile.
_DYNAMO = f"{os.sep}torch{os.sep}_dynamo{os.sep}"


def is_shipped(code: CodeType) -> bool:
    """Whether code is one of the kernels that this package ships."""
    return code.co_filename.startswith(_SHIPPED)


def is_users(file: str) -> bool:
    """Whether a file is neither this package's nor the standard library's."""
    library = file.startswith(_LIBRARY) and not _INSTALLED.search(file[len(_LIBRARY) :])
    return not (library or file.startswith((_PACKAGE, "<frozen")))


def is_machinery(code: CodeType) -> bool:
    """Whether code is this package's, or what lies between its frames, rather than the user's."""
    name = code.co_filename
    return (
        (name.startswith(_PACKAGE) and not is_shipped(code))
        or name.startswith("<frozen")
        or name in _BETWEEN
        or _DYNAMO in name
    )


def users_line() -> str | None:
    """`file:line` of the user's code that called this package; for errors of a call itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_machinery(frame.f_code):
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def kernel_location(function: Any) -> str | None:
    """`file:line` where a function begins; None for what has no code of Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


def name_of(function: Any) -> str:
    """What messages call a kernel's function."""
    return str(getattr(function, "__name__", type(function).__name__))


class Locations:
    """Numbers for source positions, first come first served."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[CodeType, int], int] = {}
        # By identity, because a code's hash covers all of it; `_codes` keeps identities unique.
        self._cache: dict[tuple[int, int], int] = {}
        self._machinery: dict[int, bool] = {}
        self._codes: list[CodeType] = []
        self._lines: dict[CodeType, tuple[list[int], list[int]]] = {}
        self.functions: set[CodeType] = set()  # of the user, on the way to a position

    def frame(self, depth: int) -> FrameType | None:
        """The innermost frame of user code, from `depth` frames above the caller."""
        frame: FrameType | None = sys._getframe(depth + 1)
        cache = self._machinery
        while frame is not None:
            code = frame.f_code
            machinery = cache.get(id(code))
            if machinery is None:
                self._codes.append(code)
                machinery = cache[id(code)] = is_machinery(code)
            if not machinery:
                return frame
            frame = frame.f_back
        return None

    def raised(self, error: BaseException) -> str | None:
        """`file:line` of the innermost user code that an exception passed through."""
        found = None
        traceback = error.__traceback__
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if not is_machinery(code):
                found = f"{code.co_filename}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        return found

    def here(self, depth: int = 1) -> int:
        """Number of the user's current position, -1 if there is none."""
        frame: FrameType | None = sys._getframe(depth + 1)
        assert frame is not None
        number = self._cache.get((id(frame.f_code), frame.f_lasti))
        if number is not None:
            return number
        frame = self.frame(depth + 1)
        if frame is None:
            return -1
        code, at = frame.f_code, frame.f_lasti
        number = self._cache.get((id(code), at))
        if number is None:
            number = self._numbers.get((code, at))
            if number is None:
                number = self._numbers[code, at] = len(self._numbers)
                self._meet(sys._getframe(depth))
            self._cache[id(code), at] = number
        return number

    def _meet(self, frame: FrameType | None) -> None:
        """Keep the functions of the kernel that led to a new position; its caller's aren't."""
        while frame is not None and frame.f_code.co_filename != _COMPILER:
            if not is_machinery(frame.f_code):
                self.functions.add(frame.f_code)
            frame = frame.f_back

    def _line(self, code: CodeType, offset: int) -> int:
        table = self._lines.get(code)
        if table is None:
            rows, first = list(code.co_lines()), code.co_firstlineno
            table = [start for start, _, _ in rows], [line or first for _, _, line in rows]
            self._lines[code] = table
        return table[1][max(0, bisect_right(table[0], offset) - 1)]

    def text(self, number: int) -> str | None:
        """`file:line` of a number."""
        for (code, offset), n in self._numbers.items():
            if n == number:
                return f"{code.co_filename}:{self._line(code, offset)}"
        return None

    def table(self) -> list[tuple[str, int, str]]:
        """(file, line, function) of every number, in order."""
        return [
            (code.co_filename, self._line(code, offset), code.co_name)
            for code, offset in self._numbers
        ]
