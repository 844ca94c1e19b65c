"""What Python would add to an uncaught exception: the name that was probably meant.

Interpreters print it themselves; what keeps an exception as data has to ask for it.
"""

from __future__ import annotations

import builtins
from difflib import get_close_matches

NEAR = 0.7  # of difflib's ratio: one letter in three may differ


def did_you_mean(error: BaseException) -> str | None:
    """What Python says of an attribute or variable that isn't there: "Did you mean: 'load'?"."""
    if isinstance(error, AttributeError):
        names = [] if error.obj is None else dir(error.obj)
    elif isinstance(error, NameError):
        names = _variables(error)
    else:
        return None
    public = [n for n in names if not n.startswith("_") or (error.name or "").startswith("_")]
    near = get_close_matches(error.name or "", public, 1, NEAR)
    return f"Did you mean: {near[0]!r}?" if near else None


def _variables(error: NameError) -> list[str]:
    at = error.__traceback__
    if at is None:
        return []
    while at.tb_next is not None:
        at = at.tb_next
    frame = at.tb_frame
    return [*frame.f_locals, *frame.f_globals, *dir(builtins)]
