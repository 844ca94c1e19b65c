"""Instructions whose addresses are known when they run: one step for all of them.

An operand with a run-time address is one view with an axis more, along which lie all indices that
are inside; the step takes the one that it is asked for. So nothing is linked, and nothing kept, per
address. What doesn't fit is lowered for each address that it meets (`runtime.late`).

Invariant: the views are those that lowering for the address would have given: if no two operands
are in one storage, nothing but where views begin depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.errors import NkiError
from nki_dist.linking.addresses import interval, resolved
from nki_dist.linking.facts import facts_of
from nki_dist.linking.indirect import lowered
from nki_dist.linking.lowering import Lowering
from nki_dist.ops.calls import only_moves
from nki_dist.ops.function import Function
from nki_dist.ops.place import Place, Space
from nki_dist.program import Access, Dynamic, Instruction
from nki_dist.program.walk import accesses


class MovingCall(NamedTuple):
    """One call of a late instruction.

    Attributes:
        arguments: by number.
        axes: those that have an axis of indices in front: (place among the arguments, operand).
    """

    function: Function
    arguments: tuple[int, ...]
    axes: tuple[tuple[int, int], ...]


class Moving(NamedTuple):
    """What an instruction with run-time addresses does, wherever they lie.

    Attributes:
        instruction: that it is.
        calls: in order.
        sources: for each operand with a run-time address, where its index is.
        intervals: least and most index.
        moves: see `placing.Step`.
        scratch: bytes that it needs besides.
    """

    instruction: Instruction
    calls: tuple[MovingCall, ...]
    sources: tuple[Dynamic, ...]
    intervals: tuple[tuple[int, int], ...]
    moves: bool
    scratch: int


def moving(i: Instruction, arch: Arch, argument: Callable[[Any], int]) -> Moving | None:
    """What the instruction does wherever its operands lie; None if it depends on where.

    Args:
        argument: gives arguments of calls their numbers.
    """
    facts = facts_of(i)
    dynamic = facts.dynamic
    numbers = [a.storage.number for a in accesses(i)]
    intervals = [found for a in dynamic if (found := interval(a)) is not None]
    if facts.indirect or len(intervals) < len(dynamic) or len(numbers) > len(set(numbers)):
        return None
    least = {id(a.dynamic): low for a, (low, _) in zip(dynamic, intervals, strict=True)}
    there = resolved(i, lambda d: least[id(d)])
    kit = Lowering(arch)
    try:
        operations = lowered(there, kit)
    except NkiError:  # which comes when it is the instruction's turn, if ever
        return None
    if kit.named:
        return None
    moved: dict[Space, int] = {("storage", a.storage.number): n for n, a in enumerate(dynamic)}
    calls, used = [], set()
    for o in operations:
        arguments, axes = [], []
        for place, a in enumerate(o.arguments):
            if type(a) is Place and (number := moved.get(a.space)) is not None:
                if not a.shape:
                    return None  # one index would be no array
                a = _axis(a, dynamic[number], intervals[number])
                axes.append((place, number))
                used.add(number)
            arguments.append(argument(a))
        calls.append(MovingCall(o.function, tuple(arguments), tuple(axes)))
    if len(used) < len(dynamic):
        return None
    sources = tuple([a.dynamic for a in dynamic if a.dynamic is not None])
    moves = all(map(only_moves, operations))
    return Moving(i, tuple(calls), sources, tuple(intervals), moves, kit.used)


def _axis(place: Place, a: Access, bounds: tuple[int, int]) -> Place:
    """The place of the least index as one of all."""
    assert a.dynamic is not None
    (least, most), unit = bounds, a.dynamic.stride * a.dtype.itemsize
    return place.over((most - least + 1, *place.shape), (unit, *place.strides), place.dtype)
