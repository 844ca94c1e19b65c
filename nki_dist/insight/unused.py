"""What nothing is made of that a launch returns: parts of arguments, and writes that are lost.

Found by going back through the launch with a mask of each memory's bytes that still matter. An
instruction of which something matters is taken to depend on all that it reads.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Key, key_of
from nki_dist.insight.steps import Source, Step
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Storage
from nki_dist.program.walk import returned
from nki_dist.report import text

_MOST: Final = 1 << 30  # bytes of operands that are gone through


class Mattering:
    """Which bytes matter.

    Attributes:
        bytes_of: by memory, at the beginning of the launch, 1 for those that matter.
        chosen: memories of which values of the launch chose rows or columns.
        lost: numbers of instructions that wrote what nothing is made of.
        known: False if the launch is too long; then nothing is known.
    """

    def __init__(self, log: Log) -> None:
        self.bytes_of: dict[Key, np.ndarray] = {}
        self.chosen: set[Key] = set()
        self.lost: set[int] = set()
        self._log, left = log, _MOST
        for slot in log.launched.slots:
            program = log.launched.program(slot.core)
            given = [s for s in program.storages if s.role == "input" and s.written]
            for s in (*given, *(a.storage for _, a in returned(program.outputs))):
                self._mask(key_of(slot, s), s)[:] = 1
        for end in reversed(range(len(log.instructions))):
            if (born := log.unwritten.get(end)) is not None:
                self._mask(key_of(log.launched.slots[log.cores[end]], born), born)[:] = 0
            elif end not in log.ended:
                left -= self._back(log.begun.get(end, end), end in log.begun)
            if left < 0:
                break
        self.known = left >= 0

    def _mask(self, key: Key, s: Storage) -> np.ndarray:
        found = self.bytes_of.get(key)
        if found is None:
            found = self.bytes_of[key] = np.zeros(s.nbytes, np.uint8)
        return found

    def _back(self, number: int, meets: bool) -> int:
        """Over one instruction; how many bytes were looked at."""
        log = self._log
        i, (reads, writes) = log.at(number), log.operands(number)
        cells = [(r.pattern.joined(), self._mask(r.key, r.storage)) for r in writes]
        if cells and not meets and not any(p.get(mask, 1).any() for p, mask in cells):
            self.lost.add(number)
            return 0
        chosen = log.chosen_by(number)
        adds = i.accumulation not in ("", "replace")
        self.chosen.update(r.key for r in reads if chosen)
        if not (meets or chosen or adds or INSTRUCTIONS[i.opcode].effects.keeps(i)):
            for pattern, mask in cells:
                pattern.put(0, mask, 1)
        for r in (*reads, *chosen):
            r.pattern.joined().put(1, self._mask(r.key, r.storage), 1)
        return sum(r.places.size * r.dtype.itemsize for r in (*reads, *writes))


def unused(log: Log, mattering: Mattering, rank: int) -> list[str]:
    """Of a rank's arguments that something is made of, the parts that nothing is made of."""
    found, launched = [], log.launched
    for s in launched.each[rank].programs[0].storages if mattering.known else ():
        key = s.role, rank, s.index
        mask = mattering.bytes_of.get(key) if s.role == "input" else None
        if mask is not None and key not in mattering.chosen and mask.any() and not mask.all():
            elements = np.flatnonzero(~mask.reshape(-1, s.dtype.itemsize).any(1))
            name = launched.compiled.inputs[s.index].name
            part = Source("argument", name, rank, elements=elements, shape=s.shape).part
            found.append(f"nothing that is returned is made of {part}")
    return found


def overwritten(log: Log, mattering: Mattering, steps: list[Step]) -> None:
    """Say of steps that wrote over what had been computed or loaded, and was lost by that."""
    for s in steps if mattering.known else ():
        for mine in _on_chip(log, s.step):
            numbers = log.written[mine.key]
            at = numbers.index(log.ended.get(s.step, s.step))
            before = numbers[at - 1] if at else -1
            if before not in mattering.lost or not log.operands(before)[0]:
                continue
            theirs = [r for r in _on_chip(log, before) if r.key == mine.key]
            if any(mine.holds(r.places).any() for r in theirs):
                line = text.short(log.who(before)[0] or "?")
                s.odd.append(
                    f"wrote over what {line} had written (step {before}) before it was used"
                )


def _on_chip(log: Log, number: int) -> list[Region]:
    return [r for r in log.writes(number) if r.storage.region.on_chip]
