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

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.insight.capture import capture
from nki_dist.insight.log import Log
from nki_dist.insight.probe import Probe, not_finite
from nki_dist.insight.regions import Region, region
from nki_dist.insight.replay import Enough, Hooks, Place, Watch, replay
from nki_dist.insight.steps import NonFinite, index_in
from nki_dist.isa import INSTRUCTIONS
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

    def __init__(self, log: Log, start: int) -> None:
        self._log, self._start = log, start
        self.doubtful: list[int] = []
        self.argument: NonFinite | None = None
        self._found: dict[int, list[_Odd]] = {}  # by core, what it reads
        replay(log.launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        if not INSTRUCTIONS[i.opcode].reads(i):  # a fill, a number
            return None, None
        # Everything is looked up when it is needed: there may be many instructions.
        return partial(self._before, place, i), partial(self._after, place, i)

    def _before(self, place: Place, i: Instruction, number: int) -> None:
        found = _odd(place.kit, INSTRUCTIONS[i.opcode].reads(i))
        self._found[place.slot.core] = found
        for a, odd, _ in found:
            if a.storage.role == "input" and self.argument is None:
                r, n = region(place.slot, a), int(np.argmax(odd))
                value = float(r.values(r.get(place.kit)).reshape(-1)[n])
                self.argument = _element(self._log, number, r, n, value, int(odd.sum()), False)

    def _after(self, place: Place, i: Instruction, number: int) -> None:
        spec, theirs = INSTRUCTIONS[i.opcode], self._found[place.slot.core]
        if number <= self._start:
            return
        vague = spec.synchronises or any(a.dynamic is not None for a in spec.reads(i))
        for _, *mine in _odd(place.kit, spec.writes(i)):
            explained = not vague and all(
                any(_within(marked, other[kind]) for _, *other in theirs)
                for kind, marked in enumerate(mine)
            )
            if not explained:
                self.doubtful.append(number)
                if len(self.doubtful) >= AT_ONCE or not (theirs or vague):
                    raise Enough
                return


_Odd: TypeAlias = "tuple[Access, np.ndarray, np.ndarray]"


def _odd(kit: Kit, accesses: Sequence[Access]) -> list[_Odd]:
    """Operands with elements that aren't finite: which ones aren't, and which are NaN.

    Those with a run-time address aren't looked at.
    """
    found = []
    for a in accesses:
        if a.dynamic is None and a.dtype.is_float:
            view = kit.view(a)
            odd = not_finite(view)
            if odd.any():
                found.append((a, odd.reshape(-1), np.isnan(view).reshape(-1)))
    return found


def _within(mine: np.ndarray, theirs: np.ndarray) -> bool:
    """Whether elements in the same places are marked, too."""
    return mine.size == theirs.size and not (mine & ~theirs).any()


def _element(log: Log, number: int, r: Region, element: int, *what: Any) -> NonFinite:
    """An element of a region; then its value, how many there are, who made it."""
    index = index_in(r.storage, int(r.places[element]))
    return NonFinite(*log.who(number), r.storage.title, number, index, *what)


def first_non_finite(log: Log) -> NonFinite | None:
    """See the module's docstring; None if there is no such element."""
    start, argument = -1, None
    while True:
        scan = _Scan(log, start)
        argument = argument or scan.argument
        if not scan.doubtful:
            return argument
        members = {m for n in scan.doubtful for m in log.rendezvous(n)}
        found = capture(log, members)
        for number in scan.doubtful:
            met = log.rendezvous(number)
            first = _first_made(log, Probe([found[n] for n in met]), number, met.index(number))
            if first is not None:
                return first
        start = scan.doubtful[-1]


def _first_made(log: Log, probe: Probe, number: int, member: int) -> NonFinite | None:
    for n, (who, r) in enumerate(probe.outputs):
        if who != member or not r.dtype.is_float:
            continue
        every = np.arange(r.places.size)
        assert probe.run()
        values = probe.values(n, every)
        odd, new = not_finite(values), np.zeros(values.shape, bool)
        for value in overflowing(log.at(number), r.dtype):
            odd &= ~((values == value) | (np.isnan(values) & np.isnan(value)))
        for test in (not_finite, np.isnan):
            if odd.any() and probe.run(calm=test):
                new |= odd & test(probe.values(n, every)) & test(values)
        tried = np.flatnonzero(new)[:TRIED]
        if tried.size and any(m.any() for m in probe.influence([(n, tried)], not_finite)):
            at = int(tried[0])
            return _element(log, number, r, at, float(values[at]), int(new.sum()), True)
    return None


def overflowing(i: Instruction, dtype: DType) -> list[Any]:
    """Numbers of an instruction that its destination holds as inf or NaN."""
    with np.errstate(all="ignore"):
        numbers = [
            np.asarray(v, np.float32).astype(dtype.dtype)[()]
            for v in i.args.values()
            if isinstance(v, (int, float)) and not isinstance(v, bool)
        ]
    return [v for v in numbers if not_finite(v)]
