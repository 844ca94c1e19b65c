"""What linking a program for one core finds out, so that the next core needn't find it out again.

The cores of a process that run one program differ in where their tensors lie, in their registers
and in whom they meet. What an instruction is, where storages are born and which of them share a
buffer is the same for all and kept here. So are steps that do nothing but call functions with views
of the operands: another core gets the same calls with views of its own memory.

Invariant: a step that is made here does what linking the instruction would have given, as it calls
the same functions with the same views, element by element. That follows from what is kept: only
functions that belong to no core, and only arrays that lie in the operands' own storages. All other
steps are linked for each core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from nki_dist.isa.kit import Kit, Step, chain
from nki_dist.program import Instruction, Program, Storage
from nki_dist.runtime.chains import Group
from nki_dist.runtime.facts import FactTable, accesses
from nki_dist.runtime.memory import Places, places
from nki_dist.runtime.merged import find_groups

CONSTANTS = (int, float, bool, type(None), type(...), np.generic)


class _View(NamedTuple):
    """An array as it lies in its storage; offset and strides in bytes."""

    storage: Storage
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...]

    def of(self, kit: Kit, shift: int) -> np.ndarray:
        buffer = kit.bytes_of(self.storage)
        return np.ndarray(self.shape, self.dtype, buffer, self.offset + shift, self.strides)


class _Call(NamedTuple):
    """A function and its arguments; some are views."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def of(self, kit: Kit, shifts: Mapping[int, int]) -> Step:
        found = []
        for a in self.arguments:
            if type(a) is _View:
                found.append(a.of(kit, shifts.get(a.storage.number, 0) if shifts else 0))
            else:
                found.append(a)
        return partial(self.function, *found)


class Template:
    """See the module's docstring.

    Args:
        program: that several cores run.
        arch: their platform.
    """

    def __init__(self, program: Program, arch: Any) -> None:
        self._program = program
        self._arch = arch
        self.table = FactTable()
        self._steps: dict[int, tuple[_Call, ...] | None] = {}
        self._moving: dict[int, tuple[tuple[int, ...], tuple[_Call, ...] | None]] = {}
        self.exchanges: dict[int, dict[Any, Any]] = {}  # what the exchanges know, by ordinal

    @cached_property
    def groups(self) -> list[Group]:
        """Matmuls that are one product; see runtime.merged."""
        return find_groups(self._program, self._arch, self.table)

    @cached_property
    def places(self) -> Places:
        """Where local storages are; see runtime.memory."""
        return places(self._program)

    def step(self, i: Instruction, kit: Kit, link: Callable[[Instruction, Kit], Step]) -> Step:
        """The step of an instruction without run-time addresses.

        Args:
            link: gives it where it has to be linked.
        """
        if i.ordinal in self._steps:
            calls = self._steps[i.ordinal]
            return link(i, kit) if calls is None else _chained(calls, kit, {})
        step = link(i, kit)
        self._steps[i.ordinal] = _calls(i, step, kit)
        return step

    def moved(
        self,
        i: Instruction,
        indices: tuple[int, ...],
        kit: Kit,
        link: Callable[[], Step],
    ) -> Step:
        """The step of an instruction whose run-time addresses are `indices`, all of them inside.

        What was learnt at other addresses holds here if no two operands are in one storage: then
        nothing but where views begin depends on them.

        Args:
            link: gives it where it has to be linked.
        """
        dynamic = self.table.of(i).dynamic
        if i.ordinal not in self._moving:
            step = link()
            numbers = [a.storage.number for a in accesses(i)]
            lonely = len(numbers) == len(set(numbers))
            self._moving[i.ordinal] = indices, _calls(i, step, kit) if lonely else None
            return step
        learnt, calls = self._moving[i.ordinal]
        if calls is None:
            return link()
        shifts = {}
        for a, index, before in zip(dynamic, indices, learnt, strict=True):
            assert a.dynamic is not None
            unit = a.dynamic.stride * a.dtype.itemsize
            shifts[a.storage.number] = (index - before) * unit
        return _chained(calls, kit, shifts)


class Moves:
    """Steps of a kind at other places, where they do nothing but call functions with views.

    What was learnt of one instruction holds for another of its kind if of neither two operands are
    in one storage; see `Template.moved`.
    """

    def __init__(self) -> None:
        # By kind, which the program keeps alive: a function, and its arguments. A view comes as the
        # operand's name, and what it is but for where the operand begins.
        self._known: dict[Any, tuple[Callable[..., Any], tuple[Any, ...]] | None] = {}

    def step(self, i: Instruction, names: Sequence[str], kit: Kit) -> Step | None:
        """The step, if it follows from what is known; `names` are those of the tensors."""
        known = self._known.get((id(i.kind), i.accumulation))
        if known is None or not _lonely(i, names):
            return None
        function, arguments = known
        found = []
        for argument in arguments:
            if type(argument) is tuple:
                name, shape, dtype, offset, strides = argument
                a = i.args[name]
                at = offset + a.offset * a.dtype.itemsize
                argument = np.ndarray(shape, dtype, kit.bytes_of(a.storage), at, strides)
            found.append(argument)
        return partial(function, *found)

    def learn(self, i: Instruction, names: Sequence[str], step: Step, kit: Kit) -> None:
        """Keep what can be known of a kind from the step of an instruction."""
        key = (id(i.kind), i.accumulation)
        if key in self._known or not _lonely(i, names):
            return
        calls = _calls(i, step, kit)
        if calls is None:
            self._known[key] = None
            return
        ((function, arguments),) = calls
        operands = {i.args[name].storage.number: name for name in names}
        found = []
        for argument in arguments:
            if type(argument) is _View:
                storage, shape, dtype, offset, strides = argument
                name = operands[storage.number]
                a = i.args[name]
                argument = (name, shape, dtype, offset - a.offset * a.dtype.itemsize, strides)
            found.append(argument)
        self._known[key] = function, tuple(found)


def _lonely(i: Instruction, names: Sequence[str]) -> bool:
    """Whether each operand is in a storage of its own."""
    numbers = [i.args[name].storage.number for name in names]
    return len(numbers) == len(set(numbers))


def _chained(calls: tuple[_Call, ...], kit: Kit, shifts: Mapping[int, int]) -> Step:
    if len(calls) == 1:
        return calls[0].of(kit, shifts)
    return chain([call.of(kit, shifts) for call in calls])


def _calls(i: Instruction, step: Step, kit: Kit) -> tuple[_Call, ...] | None:
    """What a step does, as calls that other cores can make; None if it is more than that."""
    if type(step) is not partial or step.keywords or not _belongs_to_nobody(step.func):
        return None
    storages = [(a.storage, kit.bytes_of(a.storage)) for a in accesses(i)]
    arguments: list[Any] = []
    for value in step.args:
        if type(value) is np.ndarray:
            view = _view(value, storages)
            if view is None:
                return None
            arguments.append(view)
        elif isinstance(value, CONSTANTS):
            arguments.append(value)
        else:
            return None
    return (_Call(step.func, tuple(arguments)),)


def _belongs_to_nobody(function: Any) -> bool:
    """Whether a function keeps nothing between calls that a core could miss or share."""
    return function is np.copyto or isinstance(function, np.ufunc)


def _view(array: np.ndarray, storages: list[tuple[Storage, np.ndarray]]) -> _View | None:
    """Where in one of the storages an array lies; None if it lies elsewhere."""
    address = _address(array)
    for storage, buffer in storages:
        offset = address - _address(buffer)
        if 0 <= offset < max(len(buffer), 1):
            return _View(storage, array.shape, array.dtype, offset, array.strides)
    return None


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
