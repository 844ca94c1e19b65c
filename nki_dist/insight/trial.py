"""A launch carried out once more with one line changed, for what it returns then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nki_dist.errors import NkiError
from nki_dist.insight.changes import Change, Impossible
from nki_dist.insight.regions import region
from nki_dist.insight.replay import Hooks, Launched, Place, Watch, replay
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction

# A change that the launch, or an instruction's NumPy, refuses is none that was meant. What checks
# see to before a launch may not hold, which instructions assert.
REFUSED = (
    NkiError,
    Impossible,
    AssertionError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
)
Name = tuple[int, int]  # of an instruction: core of the rank, ordinal


class Trial(Watch):
    """Carries a launch out with some instructions changed.

    Args:
        launched: the launch.
        output: the tensor that is looked at afterwards.
        change: of the instructions; None for the launch as it is.
        rounds: the instructions that are changed, and in which round of their line they are.
        swaps: instructions that are carried out in place of others.
        until: the instruction, by core of the world, that leaves in the output what is looked at;
            None for the end of the launch.

    Attributes:
        outputs: by rank, what the output holds then; empty if it can't be carried out like this.
    """

    chains = False

    def __init__(
        self,
        launched: Launched,
        output: Access,
        change: Change | None = None,
        rounds: Mapping[Name, int] | None = None,
        swaps: Mapping[Name, Instruction] | None = None,
        until: Name | None = None,
    ) -> None:
        self._output, self._until = output, until
        self._change, self._rounds, self._swaps = change, rounds or {}, swaps or {}
        self._places: dict[int, Place] = {}
        self._touched = False
        self.outputs: dict[int, np.ndarray] = {}
        try:
            with np.errstate(all="ignore"):
                replay(launched, self)
        except REFUSED:
            return
        finally:
            places, self._places = self._places, {}
        if (change is not None or swaps) and not self._touched:
            return
        if until is None:
            for place in places.values():
                self._look(place)

    def _look(self, place: Place) -> None:
        r = region(place.slot, _here(place, self._output))
        self.outputs[place.slot.rank] = r.values(r.get(place.kit))

    def changed(self, place: Place, i: Instruction) -> Instruction | None:
        self._places.setdefault(place.slot.rank, place)
        name = (place.slot.lnc_core, i.ordinal)
        if name in self._swaps:
            self._touched = True
            return self._swaps[name]
        change = self._change
        if change is None or name not in self._rounds:
            return i
        try:
            made = change.edit(i, self._rounds[name])
        except Impossible:
            return i  # of a line's rounds only some may allow it
        self._touched = True
        if made is not None:
            INSTRUCTIONS[made.opcode].verify(made, place.kit.arch)
        return made

    def linking(self, place: Place, i: Instruction) -> Hooks:
        if (place.slot.core, i.ordinal) != self._until:
            return None, None
        return None, lambda number: self._look(place)  # in a loop the last round's stays


def _here(place: Place, output: Access) -> Access:
    """The output in the program of a core."""
    return Access(
        place.program.storages[output.storage.number],
        output.offset,
        output.shape,
        output.strides,
        output.dtype,
    )


def in_time(launched: Launched, seconds: float) -> Launched:
    """The launch, given up after so long: a changed loop may not end."""
    return replace(launched, timeout=seconds)


__all__ = ["Name", "Trial", "in_time"]
