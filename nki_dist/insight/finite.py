"""The first element that isn't finite and that finite numbers were made into.

What counts is what the operands don't explain: an element is made here if it still isn't finite
when the operands' infinities and NaN are replaced by 1, and if it depends on an operand at all. A
NaN also counts if it still is one when only their NaN are replaced: it was made of infinities. So
these don't count: fills and masks (`memset` with -inf, a `on_false_value` that the tile's type
can't hold), because their author asked for them; what was read from memory that nobody wrote; and
everything that follows from such elements. An argument that isn't finite is told only where nothing
else is.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.insight.capture import Capture
from nki_dist.insight.log import Log
from nki_dist.insight.probe import Probe, not_finite
from nki_dist.insight.regions import Region, region
from nki_dist.insight.replay import Enough, Hooks, Place, Watch, replay, title
from nki_dist.insight.steps import NonFinite, index_in
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit
from nki_dist.program import Access, Instruction

AT_ONCE: Final = 64  # instructions that are looked at more closely after one replay
TRIED: Final = 256  # elements of one instruction of which it is asked whether operands matter


class _Scan(Watch):
    """Looks for instructions that may have made such elements.

    Attributes:
        doubtful: numbers of those instructions, after `start`.
        argument: the first element that isn't finite and was read from an argument.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self.doubtful: list[int] = []
        self.argument: NonFinite | None = None
        self._found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # by core, what it reads

    def linking(self, place: Place, i: Instruction) -> Hooks:
        spec = INSTRUCTIONS[i.opcode]
        if not spec.reads(i):  # a fill, a number
            return None, None
        # Everything is looked up when it is needed: there may be many instructions.
        return partial(self._before, place, i), partial(self._after, place, i)

    def _before(self, place: Place, i: Instruction, number: int) -> None:
        found = self._found[place.slot.core] = []
        for a in INSTRUCTIONS[i.opcode].reads(i):
            if not (_plain(a) and a.dtype.is_float):
                continue
            odd = _odd(a, place.kit)
            if odd is not None:
                found.append(odd)
                if a.storage.role == "input" and self.argument is None:
                    r, where = region(place.slot, a), place.program.where(i.location)
                    n = int(np.argmax(odd[0]))
                    value = float(r.values(r.get(place.kit)).reshape(-1)[n])
                    what = n, value, int(odd[0].sum()), False
                    self.argument = _element(place.slot, where, i, number, r, *what)

    def _after(self, place: Place, i: Instruction, number: int) -> None:
        spec, found = INSTRUCTIONS[i.opcode], self._found[place.slot.core]
        for a in spec.writes(i):
            odd = _odd(a, place.kit) if _plain(a) and a.dtype.is_float else None
            if odd is None or number <= self._start:
                continue
            vague = spec.synchronises or not all(map(_plain, spec.reads(i)))
            explained = not vague and all(
                any(_within(mine, theirs[kind]) for theirs in found)
                for kind, mine in enumerate(odd)
            )
            if not explained:
                self.doubtful.append(number)
                if len(self.doubtful) >= AT_ONCE or not (found or vague):
                    raise Enough
                return


def _plain(a: Access) -> bool:
    return a.dynamic is None


def _odd(a: Access, kit: Kit) -> tuple[np.ndarray, np.ndarray] | None:
    """Which elements of an operand aren't finite, and which are NaN; None if all are finite."""
    view = kit.view(a)
    odd = not_finite(view)
    return (odd.reshape(-1), np.isnan(view).reshape(-1)) if odd.any() else None


def _within(mine: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether elements in the same places are marked, too."""
    return mine.size == theirs.size and not (mine & ~theirs).any()


def _element(
    slot: CoreSlot, where: str | None, i: Instruction, number: int, r: Region, *what: Any
) -> NonFinite:
    """The element of a number in a region; then its value, how many there are, who made it."""
    element, *rest = what
    index = index_in(r.storage, int(r.places[element]))
    at = where, slot.lnc_core, slot.rank, title(i), r.storage.title, number
    return NonFinite(*at, index, *rest)


def first_non_finite(log: Log) -> NonFinite | None:
    """See the module's docstring; None if there is no such element."""
    start, argument = -1, None
    while True:
        scan = _Scan(start)
        replay(log.launched, scan)
        argument = argument or scan.argument
        if not scan.doubtful:
            return argument
        members = {m for n in scan.doubtful for m in log.meeting(n)}
        found = Capture(log.launched, log, members).found
        for number in scan.doubtful:
            meeting = log.meeting(number)
            probe = Probe([found[n] for n in meeting])
            made = _made(log, probe, number, meeting.index(number))
            if made is not None:
                return made
        start = scan.doubtful[-1]


def _made(log: Log, probe: Probe, number: int, member: int) -> NonFinite | None:
    i = log.at(number)
    for n, (who, r) in enumerate(probe.outputs):
        if who != member or not r.dtype.is_float:
            continue
        every = np.arange(r.places.size)
        assert probe.run()
        values = probe.values(n, every)
        odd = not_finite(values)
        for value in asked_for(i, r.dtype):
            odd &= ~((values == value) | (np.isnan(values) & np.isnan(value)))
        if not odd.any():
            continue
        made = np.zeros(odd.shape, bool)
        for test in (not_finite, np.isnan):
            if probe.run(calm=test):
                made |= odd & test(probe.values(n, every)) & test(values)
        odd = made
        tried = np.flatnonzero(odd)[:TRIED]
        if not tried.size or not any(m.any() for m in probe.influence([(n, tried)], not_finite)):
            continue
        slot = log.launched.slots[log.cores[number]]
        where, n = log.launched.where(slot.core, i), int(tried[0])
        return _element(slot, where, i, number, r, n, float(values[n]), int(odd.sum()), True)
    return None


def asked_for(i: Instruction, dtype: DType) -> list[Any]:
    """Numbers of an instruction that its destination holds as inf or NaN."""
    with np.errstate(all="ignore"):
        numbers = [
            np.asarray(v, np.float32).astype(dtype.dtype)[()]
            for v in i.args.values()
            if isinstance(v, (int, float)) and not isinstance(v, bool)
        ]
    return [v for v in numbers if not_finite(v)]
