"""Tracebacks end in the user's code: frames of this package are left out where errors leave it.

An error of ours says what was wrong; how the package came to notice says nothing more to its user.
What stays are the frames of whoever launched the kernel and of the kernel with its helpers. Of
other exceptions, which a kernel raises itself, what lies between the caller and the kernel goes,
and the rest stays: should one come from within this package, it is our bug, and its frames are
needed. NKI_DIST_TRACEBACK=full leaves everything as it is.

The exception itself, its cause and its context remain what they were.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from nki_dist.compiler.locations import Locations, is_machinery
from nki_dist.errors import Diagnostic
from nki_dist.runtime.settings import full_tracebacks

_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
_P = ParamSpec("_P")
_R = TypeVar("_R")


def leaves_package(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """For functions that users call: errors that pass through lose the package's frames."""

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            trim(error)
            raise

    return called


def trim(error: BaseException) -> None:
    """Leave the package's frames out of an exception that is about to be raised again.

    To be followed by a bare `raise`, which from Python 3.11 on doesn't add its own frame. Python
    3.10 goes on with the traceback of old there, whose first entry is the frame with that `raise`:
    this one stays, and pytest is told to hide it (`__tracebackhide__`).
    """
    if full_tracebacks():
        return
    seen: set[int] = set()
    shown: BaseException | None = error
    while shown is not None and id(shown) not in seen:
        seen.add(id(shown))
        shown.__traceback__ = trimmed(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    if sys.version_info < (3, 11):
        of_old = sys.exc_info()[2]
        if of_old is not None and of_old is not error.__traceback__:  # it is where nothing went
            of_old.tb_next = error.__traceback__


def _within_package(entries: list[TracebackType], ours: list[bool]) -> bool:
    """Whether it was raised here or in a library that was called from here."""
    after = entries[len(ours) - ours[::-1].index(True) :] if any(ours) else entries
    return not after or after[0].tb_frame.f_code.co_filename.startswith(_LIBRARIES)


def trimmed(error: BaseException) -> TracebackType | None:
    """The traceback of an exception without the package's frames."""
    entries = []
    traceback = error.__traceback__
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    ours = [is_machinery(e.tb_frame.f_code) for e in entries]
    if isinstance(error, Diagnostic) or not _within_package(entries, ours):
        left = [e for e, machinery in zip(entries, ours) if not machinery]
    elif not all(ours):
        left = entries[ours.index(False) :]
    else:
        return error.__traceback__
    result = None
    for e in reversed(left):
        result = TracebackType(result, e.tb_frame, e.tb_lasti, e.tb_lineno)
    return result


def raised_at(error: BaseException) -> str | None:
    """The innermost line of the program that an exception passed through."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if not is_machinery(frame.f_code) and not name.startswith(_LIBRARIES):
            found = f"{name}:{line}"
    return found or Locations().raised(error)
