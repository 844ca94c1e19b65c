"""Operations with their arrays become functions without arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from nki_dist.dtypes.scratch import Scratch
from nki_dist.ops.arrays import fill
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, is_array

Step: TypeAlias = "Callable[[], Any]"


def step_of(operations: Sequence[Operation], scratch: Scratch) -> Step:
    """A function that carries out operations in order.

    Args:
        scratch: working memory of those who run in turn.
    """
    return chain([partial(o.function.within(scratch), *o.arguments) for o in operations])


def only_moves(o: Operation) -> bool:
    """Whether it does no more than move bits, or is no affair of tensors."""
    if o.function is copy:
        out, inp = o.arguments
        return is_array(inp) and inp.dtype == out.dtype
    return o.function is fill or not any(map(is_array, o.arguments))


def nothing() -> None:
    """A step of its own for what others do."""


def chain(steps: Sequence[Step]) -> Step:
    """One function that calls several in order."""
    steps = tuple(steps)
    if not steps:
        return nothing
    if len(steps) == 1:
        return steps[0]

    def run() -> None:
        for step in steps:
            step()

    return run
