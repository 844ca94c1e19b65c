"""The line that makes an intermediate tensor wrong of others that are right.

Of all tensors of which something is expected the one that departs from it first, in the order of
execution, is looked at: everything that is expected of what came before it is as expected, so the
mistake lies between those and it. The walk back ends at what is as expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.insight.intermediate import Checked, checked, trusted
from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk
from nki_dist.insight.repair import Repair, Repairs
from nki_dist.insight.replay import Key
from nki_dist.insight.steps import Expected, Step, shown
from nki_dist.insight.suspects import WHY_BORN
from nki_dist.insight.wanted import Wanted


class Between:
    """Where what is expected is left.

    Args:
        rank: whose tensors are meant.
        key, places: memory and bytes of the element that was asked about.
        limit: steps after which walks end.

    Attributes:
        expected: everything that was expected, in the order of the launch.
        steps: the way from what departs back to what is as expected.
        suspect, why: the step to look at first.
        repairs: changes of a line in between with which what departs is as expected.

    Raises:
        LaunchError: `expected` doesn't fit the launch.
    """

    def __init__(
        self,
        log: Log,
        expected: Any,
        rank: int,
        key: Key,
        places: np.ndarray,
        limit: int | None,
    ) -> None:
        self._log, self._rank = log, rank
        found = checked(log, expected, rank)
        self.expected: list[Expected] = [one.told(log) for one in found]
        self.repairs: list[Repair] = []
        off = [one for one in found if one.departs is not None]
        first = min(off, key=lambda one: int(one.departs or 0), default=None)
        walk = Walk(log, limit, trusted(found))
        if first is None:
            walk.run(key, places)
        else:
            end = first.departs
            assert end is not None
            walk.run(first.region.key, first.region.bytes_of(np.asarray([first.worst()])), end + 1)
        self.steps = walk.steps
        self.suspect: Step | None = None
        self.why = "nothing lies between what is expected and the number that was asked for"
        if walk.steps:
            self._choose(walk, first)

    def _choose(self, walk: Walk, first: Checked | None) -> None:
        computing = [s for s in walk.steps if not s.moved] or walk.steps
        lines = dict.fromkeys((s.location, s.instruction) for s in computing)
        if first is None:
            lead = "everything that is expected is as expected, and this line lies after it"
        else:
            lead = _departure(first, walk)
        if len(lines) == 1:
            self.suspect, self.why = computing[0], lead
            self._repair(walk, first)
            if self.repairs:
                self.why += f"; it is as expected with {self.repairs[0].what}"
            return
        born = _born(walk)
        self._repair(walk, first)
        if self.repairs:
            best = self.repairs[0]
            step = next((s for s in walk.steps if s.step == best.number), computing[0])
            self.suspect, self.why = step, f"{lead}; it is as expected with {best.what}"
        elif born is not None:
            self.suspect, self.why = born, f"{lead}; {WHY_BORN}"
        else:
            self.suspect = computing[0]
            self.why = f"{lead}; of {len(lines)} lines between it is the last that computed"

    def _repair(self, walk: Walk, first: Checked | None) -> None:
        """Changes of the lines between; of a whole tensor only, as it is at the end of its life."""
        if first is None or not first.whole or any(s.made_non_finite for s in walk.steps):
            return
        launched, r = self._log.launched, first.region
        access = r.access
        assert access is not None
        ranks = launched.slots[0].ranks
        wanted = first.wanted.reshape(access.shape)
        values = [wanted if n == self._rank else None for n in range(ranks)]
        at = tuple(int(n) for n in np.unravel_index(first.worst(), access.shape))
        types = [s.dtype for s in launched.compiled.programs[0].storages]
        search = Repairs(
            self._log,
            walk.steps,
            access,
            Wanted(access, values, at, self._rank, ranks, types),
            self._ends_with(first),
        )
        self.repairs = [repair for repair in search.run() if repair.everything]

    def _ends_with(self, first: Checked) -> tuple[int, int]:
        """The instruction after which the tensor holds what is looked at."""
        number = self._log.begun.get(first.when, first.when)
        return self._log.cores[number], self._log.at(number).ordinal


def _born(walk: Walk) -> Step | None:
    """The first step that made what isn't finite."""
    return min((s for s in walk.steps if s.made_non_finite), key=lambda s: s.step, default=None)


def _departure(first: Checked, walk: Walk) -> str:
    at = first.worst()
    got, wanted = shown(first.got[at : at + 1]), shown(first.wanted[at : at + 1])
    before = "" if walk.sources.all() else ", and what it was made of is as expected"
    return f"{first.name} departs first: {got} where {wanted} is expected{before}"


def beside(steps: Sequence[Step], between: Between) -> list[Step]:
    """The steps of a walk, after those between that it doesn't have."""
    known = {(s.step, s.tensor) for s in between.steps}
    return [*between.steps, *(s for s in steps if (s.step, s.tensor) not in known)]


__all__ = ["Between", "beside"]
