"""Loops, program ids, scheduling regions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from nki_dist.errors import CompileError, NkiValidationError, invalid
from nki_dist.isa.scalar import NkiScalar
from nki_dist.isa.spec import current_tracer, release_in_force, released
from nki_dist.program import VirtualRegister


def affine_range(start, stop=None, step=1):
    """`range` whose iterations don't depend on each other; unrolled."""
    return _unrolled("affine_range", start, stop, step)


def sequential_range(start, stop=None, step=1):
    """`range` whose iterations may depend on each other; unrolled."""
    return _unrolled("sequential_range", start, stop, step)


def static_range(start, stop=None, step=1):
    """`range`, unrolled."""
    return _unrolled("static_range", start, stop, step)


def _unrolled(name: str, start: Any, stop: Any, step: Any) -> range:
    released(f"nl.{name}")
    bounds = (start,) if stop is None else (start, stop, step)
    if any(isinstance(bound, float) for bound in bounds):
        text = ", ".join(map(repr, bounds))
        message = (
            f"nl.{name}({text}); bounds and step must be ints (`/` gives a float, `//` an int)"
        )
        raise NkiValidationError(message, instruction=f"nl.{name}", code="loop-bound")
    return range(*bounds)


def dynamic_range(start, stop=None, step=1) -> Iterator[Any]:
    """A loop that stays a loop; bounds may be registers, the step is a positive int.

    Yields the induction register once: the body is recorded once and repeated at run time. NKI 0.7
    has removed it: a ReleaseWarning, and an error in kernels that are checked against 0.7.
    """
    released("nl.dynamic_range")
    if stop is None:
        start, stop = 0, start
    return current_tracer().dynamic_range(start, stop, step)


def fori_loop(lower, upper, body_fun: Callable[[Any], Any], step=1) -> None:
    """Run `body_fun(i)` for lower, lower+step, ... below upper.

    Args:
        lower, upper: ints, registers or 32-bit NkiScalars.
        body_fun: a function of the current value: an NkiScalar unless a bound is a register, and in
            kernels that are checked against NKI 0.6 always a register.
        step: a positive int.

    Raises:
        CompileError: a bound has 64 bits or is none of these; the body returns something.
    """
    tracer = current_tracer()
    _check_body("fori_loop", body_fun)
    bounds = [b.narrow("a loop bound") if isinstance(b, NkiScalar) else b for b in (lower, upper)]
    old = any(
        isinstance(b, VirtualRegister) and not isinstance(b, NkiScalar) for b in (lower, upper)
    )
    wrapped = not old and release_in_force(tracer).has("fori_loop with an NkiScalar")
    tracer.for_loop(*bounds, step, body_fun, NkiScalar if wrapped else None)


def while_loop(init, body_fun: Callable[[Any], Any]) -> None:
    """Repeat `body_fun(register) -> register` while the condition register is nonzero."""
    _check_body("while_loop", body_fun)
    current_tracer().while_loop(init, body_fun)


def _check_body(loop: str, body: Any) -> None:
    """A loop's body is called with one value.

    Raises:
        CompileError: it can't be.
    """
    try:
        inspect.signature(body).bind(None)
    except ValueError:  # it has no signature that Python knows
        return
    except TypeError as error:
        raise CompileError(
            f"the body of {loop} is {body!r}: {error}; write a function of one parameter, as in "
            f"`def body(i): ...` and nl.{loop}(..., body)",
            code="loop-body",
        ) from None


@contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions inside keep their program order on every engine."""
    with current_tracer().no_reorder():
        yield


def program_id(axis=0):
    """Index of this program instance along an axis of the launch grid (0 without a grid)."""
    tracer = current_tracer()
    if not tracer.grid and axis == 0:
        return 0
    return tracer.program_ids[_axis(tracer, axis)]


def num_programs(axes=0):
    """Number of program instances along one axis, or the product along several; all for None."""
    tracer = current_tracer()
    if axes is None:
        return prod(tracer.grid)
    if isinstance(axes, (tuple, list)):
        return prod(num_programs(a) for a in axes)
    if not tracer.grid and axes == 0:
        return 1
    return tracer.grid[_axis(tracer, axes)]


def program_ndim():
    """Number of axes of the launch grid, 0 without a grid."""
    return len(current_tracer().grid)


def _axis(tracer: Any, axis: int) -> int:
    if not isinstance(axis, int) or not -len(tracer.grid) <= axis < len(tracer.grid):
        message = f"axis {axis!r} of a launch grid with {len(tracer.grid)} axes"
        raise invalid(message, code="grid-axis", got=axis, most=len(tracer.grid) - 1)
    return axis
