"""What nothing is made of that a launch returns: parts of arguments, and writes that are lost.

Found by going back through the launch with a mask of each memory's bytes that still matter. An
instruction of which something matters is taken to depend on all that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Final

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Key, key_of
from nki_dist.insight.steps import Source, Step
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program.walk import returned
from nki_dist.report import text

_MOST: Final = 1 << 30  # bytes of operands that are gone through


def unused(log: Log, rank: int, steps: Sequence[Step]) -> Iterator[str]:
    """Of a rank's arguments that something is made of, the parts that nothing is made of.

    Says of steps, in `Step.odd`, that they wrote over what had been computed or loaded on chip and
    was lost by that. Does nothing for a launch that is too long.
    """
    launched, left = log.launched, _MOST
    matters: dict[Key, np.ndarray] = {}  # 1 for bytes that do
    chosen: set[Key] = set()  # arguments of which values chose rows
    lost: dict[int, str] = {}  # by the step that wrote over it
    for slot in launched.slots:
        program = launched.program(slot.core)
        changed = [s for s in program.storages if s.role == "input" and s.written]
        for kept in (*changed, *(a.storage for _, a in returned(program.outputs))):
            matters[key_of(slot, kept)] = np.ones(kept.nbytes, np.uint8)
    for end in reversed(range(len(log.instructions))):
        if (born := log.unwritten.get(end)) is not None:
            key = key_of(launched.slots[log.cores[end]], born)
            matters.pop(key, None)
        if born is not None or end in log.ended:
            continue
        number = log.begun.get(end, end)
        i, (reads, writes), rows = log.at(number), log.operands(number), log.chosen_by(number)
        for r in (*reads, *writes, *rows):
            matters.setdefault(r.key, np.zeros(r.storage.nbytes, np.uint8))
        cells = [(r.pattern.joined(), matters[r.key]) for r in writes]
        if writes and end == number and not any(p.get(mask, 1).any() for p, mask in cells):
            if reads and writes[0].storage.region.on_chip:
                line = text.short(log.who(number)[0] or "?")
                lost[_over(log, end, writes[0])] = f"what {line} had written (step {number})"
        else:
            adds = i.accumulation not in ("", "replace") or INSTRUCTIONS[i.opcode].effects.keeps(i)
            for pattern, mask in cells if end == number and not rows and not adds else ():
                pattern.put(0, mask, 1)
            for r in (*reads, *rows):
                r.pattern.joined().put(1, matters[r.key], 1)
            chosen.update(r.key for r in reads if rows)
        left -= sum(r.places.size * r.dtype.itemsize for r in (*reads, *writes))
        if left < 0:
            return
    for s in steps:
        s.odd += [f"wrote over {lost[s.step]} before it was used"] if s.step in lost else []
    for given in launched.each[rank].programs[0].storages:
        key = given.role, rank, given.index
        mask = matters.get(key, np.empty(0))
        if given.role == "input" and key not in chosen and mask.any():
            elements = np.flatnonzero(~mask.reshape(-1, given.dtype.itemsize).any(1))
            name = launched.compiled.inputs[given.index].name
            part = Source("argument", name, rank, elements=elements, shape=given.shape).part
            if elements.size:
                yield f"nothing that is returned is made of {part}"


def _over(log: Log, end: int, r: Region) -> int:
    """The step that wrote, next after a number, where some elements are; -1 for none."""
    numbers = log.written[r.key]
    later = takewhile(lambda n: n not in log.unwritten, numbers[numbers.index(end) + 1 :])
    for n in (log.begun.get(n, n) for n in later):
        if any(w.key == r.key and w.holds(r.places).any() for w in log.writes(n)):
            return n
    return -1
