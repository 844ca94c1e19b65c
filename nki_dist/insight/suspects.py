"""Which step of the way to look at first, and why.

The reasons are tried in the order of the list in docs/records.md ("Where a number came from"), the
only one that numbers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk
from nki_dist.insight.repair import Repair
from nki_dist.insight.replay import Key
from nki_dist.insight.steps import Source, Step, index_in

WHY_BORN: Final = "it made a number that isn't finite of numbers that are, or NaN of infinities"


def suspect_of(
    log: Log,
    walk: Walk,
    key: Key,
    places: np.ndarray,
    repairs: Sequence[Repair] = (),
    certain: bool = False,
) -> tuple[Step | None, str]:
    """The step, and the reason; None where nothing was written.

    Args:
        key, places: the memory and the bytes that were asked for.
        repairs: changes that make the results as expected, the best first.
        certain: they are of more than one number, so that there is hardly another reason.
    """
    steps = walk.steps
    repaired = None
    if repairs:
        best = repairs[0]
        how = "all that is expected is" if certain and best.everything else "this number is"
        repaired = _of_repair(log, steps, best), f"{how} as expected with {best.what}"
        if certain:
            return repaired
    if not steps:
        return None, "nothing in the launch wrote it"
    born = [s for s in steps if s.made_non_finite]
    if born:
        return min(born, key=lambda s: s.step), WHY_BORN
    for s in reversed(steps):
        unwritten = [r for r in s.reads if isinstance(r, Source) and r.kind == "unwritten"]
        if unwritten:
            return s, f"it read {unwritten[0].name} where nobody had written"
    lost = _stored_over(log, walk, key, places)
    if lost is not None:
        return steps[0], f"it stored over what {lost} had stored, which nothing had read"
    if repaired is not None:
        return repaired
    for s in steps:
        if not s.moved:
            return s, "it made this number; what follows only moved it"
    return steps[0], "nothing was computed: the number was only moved"


def _of_repair(log: Log, steps: Sequence[Step], repair: Repair) -> Step:
    """The step of a repair; one that the number should have depended on is made up."""
    for step in steps:
        if step.step == repair.number:
            return step
    slot = log.launched.slots[log.cores[repair.number]]
    r = log.writes(repair.number)[0]
    return Step(
        repair.where,
        slot.lnc_core,
        slot.rank,
        repair.instruction,
        r.storage.title,
        repair.number,
        index_in(r.storage, r.dtype, int(r.places[0])),
        r.places.size,
        np.empty(0),
    )


def _stored_over(log: Log, walk: Walk, key: Key, places: np.ndarray) -> str | None:
    """The instruction whose store to the same place was lost without having been read."""
    if key[0] == "local":
        return None
    numbers = log.written.get(key, ())
    ends = [
        end
        for end in numbers
        if end not in log.unwritten and walk.covered(log.begun.get(end, end), key, places).any()
    ]
    if len(ends) < 2:
        return None
    first, second = (log.begun.get(end, end) for end in ends[-2:])
    if log.at(first).ordinal == log.at(second).ordinal or second in log.meeting(first):
        return None
    for number in range(first + 1, second + 1):
        if log.instructions[number] is None:
            continue
        if any(r.key == key and r.holds(places).any() for r in log.reads(number)):
            return None
    core = log.cores[first]
    return f"{log.launched.where(core, log.at(first))} (core {log.launched.slots[core].lnc_core})"
