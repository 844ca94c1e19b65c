"""Where two records part."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.insight.asking import Digests
from nki_dist.insight.regions import region
from nki_dist.insight.replay import Enough, Hooks, Launched, Place, Watch, replay, title
from nki_dist.insight.steps import Difference, index_in
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction


def parting(mine: Launched, theirs: Launched) -> Difference | None:
    """The first instruction, in the order of `mine`, at which the two differ; None if none does.

    Raises:
        LaunchError: they ran on different numbers of ranks or cores.
    """
    sizes = [(x.slots[0].ranks, x.slots[0].cores) for x in (mine, theirs)]
    if sizes[0] != sizes[1]:
        raise LaunchError(
            f"the records are of {sizes[0][0]} ranks of {sizes[0][1]} cores and of {sizes[1][0]} "
            f"of {sizes[1][1]}; only records of as many cores can be compared",
            code="record-question",
            numbers={"got": sizes[1], "allowed": sizes[0]},
        )
    words = Digests(mine).of, Digests(theirs).of
    first: tuple[int, int, int] | None = None
    for core in words[0]:
        for n, (a, b) in enumerate(zip_longest(words[0][core], words[1][core])):
            if a is None or b is None or a[2] != b[2]:
                number = a[3] if a is not None else len(words[0][core])
                if first is None or number < first[0]:
                    first = (number, core, n)
                break
    if first is None:
        return None
    number, core, n = first
    return _Pair(mine, words[0][core], core, n).against(_Pair(theirs, words[1][core], core, n))


class _Pair(Watch):
    """What the n-th instruction of a core wrote in one of the records."""

    def __init__(
        self, launched: Launched, done: list[tuple[int, int, bytes, int]], core: int, n: int
    ):
        self._launched, self._core = launched, core
        self._number = done[n][0] if n < len(done) else -1
        self._ordinal = done[n][1] if n < len(done) else -1
        self.step = self._number if n < len(done) else (done[-1][0] + 1 if done else 0)
        self.instruction: Instruction | None = None
        self.written: list[Any] = []
        if self._ordinal >= 0:
            replay(launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        if place.slot.core != self._core or i.ordinal != self._ordinal:
            return None, None
        regions: list[Any] = []

        def before(number: int) -> None:
            accesses = INSTRUCTIONS[i.opcode].writes(i)
            regions[:] = [region(place.slot, a, place.kit) for a in accesses]

        def after(number: int) -> None:
            if number == self._number:
                self.instruction = i
                self.written = [(r, r.get(place.kit)) for r in regions]
                raise Enough

        return before, after

    def against(self, other: _Pair) -> Difference:
        slot = self._launched.slots[self._core]
        mine, theirs = self.instruction, other.instruction
        where = None if mine is None else self._launched.where(self._core, mine)
        called = "the end" if mine is None else title(mine)
        at = where, slot.lnc_core, slot.rank, called
        same = mine is not None and theirs is not None and mine.opcode == theirs.opcode
        for (r, a), (_, b) in zip(self.written, other.written) if same else ():
            if a.shape != b.shape or a.dtype != b.dtype:
                break
            differ = np.flatnonzero(a != b)
            if differ.size:
                index = index_in(r.storage, r.dtype, int(r.places[differ[0]]))
                one, two = (r.values(x).reshape(-1)[differ[0]] for x in (a, b))
                return Difference(*at, r.storage.title, self.step, index, one, two, differ.size)
        goes_on = "its end" if theirs is None else title(theirs)
        return Difference(*at, "", self.step, None, called, goes_on, 0)
