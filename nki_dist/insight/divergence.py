"""Where two records diverge: the first instruction that wrote other bits in one than in the
other."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from nki_dist.insight.regions import Region, after_writes
from nki_dist.insight.replay import Hooks, Launched, Place, Watch, replay, title
from nki_dist.insight.steps import Difference, index_in, unanswered
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction


def first_divergence(mine: Launched, theirs: Launched) -> Difference | None:
    """The first instruction, in the order of `mine`, at which the two differ; None if none does.

    Raises:
        LaunchError: they ran on different numbers of ranks or cores.
    """
    sizes = [(x.slots[0].ranks, x.slots[0].cores) for x in (mine, theirs)]
    if sizes[0] != sizes[1]:
        raise unanswered(
            f"the records are of {sizes[0][0]} ranks of {sizes[0][1]} cores and of {sizes[1][0]} "
            f"of {sizes[1][1]}; only records of as many cores can be compared",
            got=sizes[1],
            allowed=sizes[0],
        )
    two = _Digests(theirs, _Digests(mine).of)
    one = _Digests(mine, two.of)
    cores = one.divergent.keys() | two.divergent.keys()
    if not cores:
        return None
    core = min(cores, key=lambda c: (one.ends[c], c))
    slot, a, b = mine.slots[core], one.divergent.get(core), two.divergent.get(core)
    if a is None:
        end, who = "the end", (slot.lnc_core, slot.rank)
        return Difference(None, *who, end, "", one.ends[core] + 1, None, end, _title(b), 0)
    at = mine.where(core, a.instruction), slot.lnc_core, slot.rank, _title(a)
    same = b is not None and a.instruction.opcode == b.instruction.opcode
    for (r, x), (_, y) in zip(a.written, b.written) if b is not None and same else ():
        if x.shape != y.shape or x.dtype != y.dtype:
            break
        differ = np.flatnonzero(x != y)
        if differ.size:
            index = index_in(r.storage, int(r.places[differ[0]]))
            x, y = (r.values(v).reshape(-1)[differ[0]] for v in (x, y))
            return Difference(*at, r.storage.title, a.number, index, x, y, differ.size)
    return Difference(*at, "", a.number, None, at[3], _title(b), 0)


class _Divergent(NamedTuple):
    """An instruction that wrote something else than another launch's, and the bits."""

    number: int
    instruction: Instruction
    written: list[tuple[Region, np.ndarray]]


def _title(divergent: _Divergent | None) -> str:
    return "its end" if divergent is None else title(divergent.instruction)


class _Digests(Watch):
    """A digest of everything each core wrote.

    Args:
        others: the digests of another launch.

    Attributes:
        of: by core of the world, in its order.
        divergent: by core, the first instruction with another digest than the others have.
        ends: by core, the number of that one's end, or of the last one's.
    """

    def __init__(self, launched: Launched, others: dict[int, list[bytes]] | None = None) -> None:
        self._others = others
        self.of: dict[int, list[bytes]] = {s.core: [] for s in launched.slots}
        self.divergent: dict[int, _Divergent] = {}
        self.ends = dict.fromkeys(self.of, -1)
        replay(launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        core = place.slot.core
        digests = self.of[core]

        def told(number: int, regions: list[Region]) -> None:
            written = [(r, r.get(place.kit)) for r in regions]
            hasher = blake2b(i.opcode.encode(), digest_size=8)
            for r, bits in written:
                hasher.update(f"{r.shape} {r.dtype}".encode())
                hasher.update(bits.tobytes())
            digests.append(hasher.digest())
            if core not in self.divergent:
                self.ends[core], at = self.now, len(digests) - 1
                if self._others is not None and self._others[core][at : at + 1] != digests[at:]:
                    self.divergent[core] = _Divergent(number, i, written)

        return after_writes(place, INSTRUCTIONS[i.opcode].writes(i), told)
