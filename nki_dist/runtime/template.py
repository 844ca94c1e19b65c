"""What linking a program for one core finds out, so that the next core needn't find it out again.

The cores of a process that run one program differ in where their tensors lie, in their registers
and in whom they meet. What an instruction is, where storages are born and which of them share a
buffer is the same for all and kept here, and so is the recipe that the first core leaves
(`runtime.recipe`).

Invariant: a step that is made from what is kept does what linking the instruction would have given,
as it calls the same functions with the same views, element by element: only functions that belong
to no core are kept, and only arrays that lie in the operands' own storages (`runtime.calls`). All
other steps are linked for each core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from nki_dist.forks import cached_property
from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step
from nki_dist.program import Access, Instruction, Program, instructions
from nki_dist.runtime.calls import View, call_of
from nki_dist.runtime.chains import Group
from nki_dist.runtime.facts import FactTable
from nki_dist.runtime.forms import Forms
from nki_dist.runtime.memory import Places, places
from nki_dist.runtime.merged import find_groups, multiplies
from nki_dist.runtime.recipe import Recipe


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
        self.forms = Forms()
        self.recipe: Recipe | None = None
        self._known: dict[int, dict[Any, Any]] = {}  # what instructions keep, by ordinal
        self._first: dict[Any, int] = {}  # ordinals of exchanges by arguments
        self._like: dict[int, int] = {}  # for each exchange the first with its arguments

    def known(self, ordinal: int) -> dict[Any, Any]:
        """What an instruction keeps for other cores; see isa.kit."""
        return self._known.setdefault(ordinal, {})

    def like(self, i: Instruction) -> int:
        """The ordinal of an exchange that has the same arguments; its own, if none is known."""
        found = self._like.get(i.ordinal)
        if found is None:
            arguments = tuple([(name, _equal(value)) for name, value in i.args.items()])
            found = self._first.setdefault((i.opcode, arguments), i.ordinal)
            self._like[i.ordinal] = found
        return found

    @cached_property
    def multiplies(self) -> bool:
        """Whether there are matmuls."""
        return any(multiplies(i) for i in instructions(self._program.body))

    @cached_property
    def groups(self) -> list[Group]:
        """Matmuls that are one product; see runtime.merged."""
        return find_groups(self._program, self._arch, self.table)

    @cached_property
    def places(self) -> Places:
        """Where local storages are; see runtime.memory."""
        return places(self._program)


def _equal(value: Any) -> Any:
    """Equal for equal arguments; of what isn't known to be plain, only to itself."""
    if isinstance(value, (list, tuple)):
        return tuple([_equal(v) for v in value])
    if isinstance(value, Access) and value.dynamic is None:
        return (value.storage.number, value.offset, value.shape, value.strides, id(value.dtype))
    if value is None or isinstance(value, (int, str)):
        return type(value), value
    return id(value)


class Moves:
    """Steps of a kind at other places, where they do nothing but call functions with views.

    What was learnt of one instruction holds for another of its kind if of neither two operands are
    in one storage: then nothing but where views begin depends on the places.
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
        call = call_of(i, step, kit)
        if call is None:
            self._known[key] = None
            return
        function, arguments = call
        operands = {i.args[name].storage.number: name for name in names}
        found = []
        for argument in arguments:
            if type(argument) is View:
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
