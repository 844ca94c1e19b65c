"""Where two records part."""

from __future__ import annotations

from hashlib import blake2b
from itertools import zip_longest

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.insight.regions import Region, after_writes
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
    words, others = _Words(mine).of, _Words(theirs).of
    parted = []
    for core, done in words.items():
        for n, (a, b) in enumerate(zip_longest(done, others[core])):
            if a is None or b is None or a[2] != b[2]:
                end = a[0] if a is not None else done[-1][0] + 1 if done else 0
                parted.append((end, core, n))
                break
    if not parted:
        return None
    end, core, n = min(parted)
    one = _Wrote(mine, core, *words[core][n : n + 1])
    two = _Wrote(theirs, core, *others[core][n : n + 1])
    i, other = one.instruction, two.instruction
    step = words[core][n][1] if i is not None else end
    slot, where = mine.slots[core], None if i is None else mine.where(core, i)
    at = where, slot.lnc_core, slot.rank, "the end" if i is None else title(i)
    same = i is not None and other is not None and i.opcode == other.opcode
    for (r, a), (_, b) in zip(one.written, two.written) if same else ():
        if a.shape != b.shape or a.dtype != b.dtype:
            break
        differ = np.flatnonzero(a != b)
        if differ.size:
            index = index_in(r.storage, int(r.places[differ[0]]))
            x, y = (r.values(v).reshape(-1)[differ[0]] for v in (a, b))
            return Difference(*at, r.storage.title, step, index, x, y, differ.size)
    goes_on = "its end" if other is None else title(other)
    return Difference(*at, "", step, None, at[3], goes_on, 0)


Word = tuple[int, int, bytes]  # number of an instruction's end and beginning, digest of its writes


class _Words(Watch):
    """A short word for everything each core wrote.

    Attributes:
        of: by core of the world, in its order.
    """

    def __init__(self, launched: Launched) -> None:
        self.of: dict[int, list[Word]] = {s.core: [] for s in launched.slots}
        replay(launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        def told(number: int, regions: list[Region]) -> None:
            word = blake2b(i.opcode.encode(), digest_size=8)
            for r in regions:
                word.update(f"{r.shape} {r.dtype}".encode())
                word.update(r.get(place.kit).tobytes())
            self.of[place.slot.core].append((self.now, number, word.digest()))

        return after_writes(place, INSTRUCTIONS[i.opcode].writes(i), told)


class _Wrote(Watch):
    """What the instruction of a word, if there is one, wrote.

    Attributes:
        instruction, written: None and nothing if the core had come to its end.
    """

    def __init__(self, launched: Launched, core: int, word: Word | None = None) -> None:
        self._core, self._word = core, word
        self.instruction: Instruction | None = None
        self.written: list[tuple[Region, np.ndarray]] = []
        if word is not None:
            replay(launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        if place.slot.core != self._core:
            return None, None

        def told(number: int, regions: list[Region]) -> None:
            if self._word is not None and number == self._word[1]:
                self.instruction = i
                self.written = [(r, r.get(place.kit)) for r in regions]
                raise Enough

        return after_writes(place, INSTRUCTIONS[i.opcode].writes(i), told)
