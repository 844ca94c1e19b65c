"""Finds parts of arguments, and writes, that nothing a launch returns is made of.

Found by going back through the launch with a mask of each memory's bytes: whether what they hold is
read, and whether something that is returned is made of it. An instruction of which something is
returned is taken to depend on all that it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Key, key_of
from nki_dist.insight.steps import Source, Step
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program.walk import returned
from nki_dist.report import text

_MOST: Final = 1 << 30  # bytes of operands that are gone through
_READ, _RETURNED = 1, 2  # what masks are made of


def unused(log: Log, rank: int, steps: Sequence[Step]) -> Iterator[str]:
    """Of a rank's arguments that something is made of, the parts that nothing is made of.

    Says of steps, in `Step.odd`, that they wrote over what nobody had read, on chip. Filling a
    tensor anew isn't odd, and neither is what a line leaves in one round of several: the last round
    of a loop prepares the next one, too. Does nothing for a launch that is too long.
    """
    launched, left = log.launched, _MOST
    masks: dict[Key, np.ndarray] = {}
    chosen: set[Key] = set()  # arguments of which values chose rows
    rounds, lost = Counter[Any](), Counter[Any]()  # by line, of what it writes on chip
    over: list[tuple[int, int, Any]] = []  # the step that wrote over one, that one, its line
    for slot in launched.slots:
        program = launched.program(slot.core)
        changed = [s for s in program.storages if s.role == "input" and s.written]
        for storage in (*changed, *(a.storage for _, a in returned(program.outputs))):
            masks[key_of(slot, storage)] = np.full(storage.nbytes, _READ | _RETURNED, np.uint8)
    for end in reversed(range(len(log.instructions))):
        if (born := log.unwritten.get(end)) is not None:
            masks.pop(key_of(launched.slots[log.cores[end]], born), None)
        if born is not None or end in log.ended:
            continue
        number = log.begun.get(end, end)
        i, (reads, writes), rows = log.at(number), log.operands(number), log.chosen_by(number)
        for r in (*reads, *writes, *rows):
            masks.setdefault(r.key, np.zeros(r.storage.nbytes, np.uint8))
        cells = [(r.pattern.joined(), masks[r.key]) for r in writes]
        alone = bool(writes) and end == number  # it doesn't write for others
        use = _READ | _RETURNED
        if alone:
            use = _READ | int(max(p.get(mask, 1).max(initial=0) for p, mask in cells))
            if reads and writes[0].storage.region.on_chip:
                line = log.cores[number], i.location, i.opcode
                rounds[line] += 1
                if not any(p.get(mask, 1).any() for p, mask in cells):
                    lost[line] += 1
                    over.append((_over(log, end, writes[0]), number, line))
        adds = i.accumulation not in ("", "replace") or INSTRUCTIONS[i.opcode].effects.keeps(i)
        for pattern, mask in cells if alone and not rows and not adds else ():
            pattern.put(0, mask, 1)
        for r in (*reads, *rows):
            pattern, mask = r.pattern.joined(), masks[r.key]
            pattern.put(pattern.get(mask, 1) | np.uint8(use), mask, 1)
        chosen.update(r.key for r in reads if rows)
        left -= sum(r.places.size * r.dtype.itemsize for r in (*reads, *writes))
        if left < 0:
            return
    told = {
        step: f"wrote over what {text.short(log.who(number)[0] or '?')} had written (step {number})"
        for step, number, line in over
        if 2 * lost[line] > rounds[line]
    }
    for s in steps:
        s.odd += [f"{told[s.step]} before it was used"] if s.step in told else []
    for given in launched.each[rank].programs[0].storages:
        key = given.role, rank, given.index
        mask = masks.get(key, np.empty(0, np.uint8)) & _RETURNED
        if given.role == "input" and key not in chosen and mask.any():
            elements = np.flatnonzero(~mask.reshape(-1, given.dtype.itemsize).any(1))
            name = launched.compiled.inputs[given.index].name
            part = Source("argument", name, rank, elements=elements, shape=given.shape).part
            if elements.size:
                yield f"nothing that is returned is made of {part}"


def _over(log: Log, end: int, r: Region) -> int:
    """The step that wrote, next after a number, where some elements are; -1 for none, and for one
    that fills them with what it didn't read."""
    numbers = log.written[r.key]
    later = takewhile(lambda n: n not in log.unwritten, numbers[numbers.index(end) + 1 :])
    for n in (log.begun.get(n, n) for n in later):
        if any(w.key == r.key and w.holds(r.places).any() for w in log.writes(n)):
            return n if log.operands(n)[0] else -1
    return -1
