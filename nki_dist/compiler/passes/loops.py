"""What is known at compile time about how often a loop runs.

Bounds in registers are unknown; a `while` may not run at all.
"""

from __future__ import annotations

from nki_dist.program import Loop


def _iterations(loop: Loop) -> int | None:
    if loop.kind == "for" and isinstance(loop.start, int) and isinstance(loop.stop, int):
        return max(0, -(-(loop.stop - loop.start) // loop.step))
    return None


def surely_runs(loop: Loop) -> bool:
    """At least once."""
    return (_iterations(loop) or 0) >= 1


def surely_repeats(loop: Loop) -> bool:
    """At least twice."""
    return (_iterations(loop) or 0) >= 2


def may_repeat(loop: Loop) -> bool:
    """Perhaps twice or more."""
    count = _iterations(loop)
    return count is None or count >= 2
