"""What instructions with run-time addresses do, learnt at one address for all of one form.

Instructions of a form differ only in where their operands lie, as those of one `kind` do (which
have no run-time address), and in where their indices come from.

Invariant: as in `runtime.addressed`; of a form, too, nothing but where views begin depends on the
places, if no two operands are in one storage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from nki_dist.errors import NkiError
from nki_dist.program import Access, Instruction, VirtualRegister
from nki_dist.runtime.addressed import Axis, Linking, Moving
from nki_dist.runtime.addresses import interval, resolved
from nki_dist.runtime.calls import View, are_apart, call_of
from nki_dist.runtime.facts import accesses


class _Beside(NamedTuple):
    """A view by where it begins, in bytes from where the operand of that number does."""

    operand: int
    view: View


class _Learnt(NamedTuple):
    """A function and its arguments; some are views."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Forms:
    """What is known of a program's instructions with run-time addresses."""

    def __init__(self) -> None:
        self._moving: dict[int, Moving | None] = {}  # by ordinal
        self._learnt: dict[tuple[Any, ...], _Learnt | None] = {}

    def of(self, i: Instruction, dynamic: Sequence[Access], linker: Linking) -> Moving | None:
        """What the instruction does wherever the operands `dynamic` lie.

        Returns:
            None where it has to be linked for each address.
        """
        if i.ordinal not in self._moving:
            self._moving[i.ordinal] = self._found(i, dynamic, linker)
        return self._moving[i.ordinal]

    def _found(self, i: Instruction, dynamic: Sequence[Access], linker: Linking) -> Moving | None:
        intervals = [found for a in dynamic if (found := interval(a)) is not None]
        if len(intervals) < len(dynamic) or not are_apart(i):
            return None
        least = {id(a.dynamic): low for a, (low, _) in zip(dynamic, intervals, strict=True)}
        there = resolved(i, lambda d: least[id(d)])
        form = _form(i)
        if form is None or form not in self._learnt:
            try:
                linker.kit.begin()
                call = call_of(there, linker.linked(there), linker.kit)
            except (NkiError, MemoryError):  # which come when it is the instruction's turn, if ever
                return None
            learnt = (
                None if call is None else _Learnt(call.function, _beside(there, call.arguments))
            )
            if form is not None:
                self._learnt[form] = learnt
        else:
            learnt = self._learnt[form]
        return None if learnt is None else _placed(learnt, there, dynamic, intervals)


def _form(i: Instruction) -> tuple[Any, ...] | None:
    """Equal for instructions of one form; None where arguments aren't plain enough to tell."""
    found: list[Any] = [i.opcode, i.engine, i.accumulation]
    for name, value in i.args.items():
        if isinstance(value, Access):
            s, d = value.storage, value.dynamic
            if d is not None and d.kind != "scalar":
                return None
            # Types are single objects.
            found += name, value.shape, value.strides, id(value.dtype), d is None
            found += s.region, s.shape, id(s.dtype)
        elif value is None or isinstance(value, (int, str, Enum)):
            found += name, type(value), value
        else:
            return None
    return tuple(found)


def _beside(there: Instruction, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments with views by operands."""
    operands = list(accesses(there))
    numbers = {a.storage.number: n for n, a in enumerate(operands)}
    found: list[Any] = []
    for view in arguments:
        if type(view) is View:
            n = numbers[view.storage.number]
            begin = operands[n].offset * operands[n].dtype.itemsize
            found.append(_Beside(n, view._replace(offset=view.offset - begin)))
        else:
            found.append(view)
    return tuple(found)


def _placed(
    learnt: _Learnt,
    there: Instruction,
    dynamic: Sequence[Access],
    intervals: Sequence[tuple[int, int]],
) -> Moving | None:
    """What an instruction does, of which `there` is the one with the least indices."""
    operands = accesses(there)
    moved = {a.storage.number: number for number, a in enumerate(dynamic)}
    arguments: list[Any] = []
    axes: dict[int, int] = {}  # operand by the place of the argument
    for place, a in enumerate(learnt.arguments):
        if type(a) is _Beside:
            at, view = operands[a.operand], a.view
            offset = at.offset * at.dtype.itemsize + view.offset
            a = view._replace(storage=at.storage, offset=offset)
            number = moved.get(at.storage.number)
            if number is not None:
                if not a.shape:
                    return None  # one index would be no array
                axes[place] = number
                a = _axis(a, number, dynamic[number], intervals[number])
        arguments.append(a)
    if set(axes.values()) != set(range(len(dynamic))):
        return None
    sources = tuple([a.dynamic for a in dynamic if a.dynamic is not None])
    single = None
    if len(arguments) == 2 and len(axes) == 1 and type(sources[0].source) is VirtualRegister:
        ((least, most),) = intervals
        single = sources[0].source.number, next(iter(axes)), least, most - least
    return Moving(learnt.function, tuple(arguments), sources, tuple(intervals), single)


def _axis(view: View, number: int, a: Access, bounds: tuple[int, int]) -> Axis:
    """The view of the least index as one of all."""
    assert a.dynamic is not None
    (least, most), unit = bounds, a.dynamic.stride * a.dtype.itemsize
    shape, strides = (most - least + 1, *view.shape), (unit, *view.strides)
    return Axis(view._replace(shape=shape, strides=strides), number)
