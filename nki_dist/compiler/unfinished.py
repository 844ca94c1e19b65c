"""What a kernel may not leave unfinished: a dynamic loop, a collective in two calls."""

from __future__ import annotations

from typing import Any

from nki_dist.errors import CompileError


def check_finished(trace: Any) -> None:
    """See that nothing is left open where an instance of the kernel ends.

    Raises:
        CompileError: a prepared collective was never triggered, or the kernel jumped out of a loop.
    """
    if trace.prepared is not None:
        name = f"{trace.prepared.spec.name}_prepare"
        raise CompileError(
            f"a {name} has no trigger; each is followed by exactly one",
            location=trace.locations.text(trace.prepared.instruction.location),
            core=trace.core,
            instruction=f"ncc.{name}",
            code="collective-prepare",
        )
    if trace._open:
        raise CompileError(
            "the kernel left a dynamic loop by break, return or an exception; its body must "
            "run to its end",
            location=trace.locations.text(trace._open[-1].loop.location),
            core=trace.core,
            code="loop-left",
        )
