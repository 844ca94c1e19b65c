"""Where an element of a result came from: the writes it depends on, back to the arguments.

The walk goes back in the order of execution. Of every write that made an element that matters, the
elements that it depended on are found (`probe`), and for each of those the write that it was read
from. Every instruction is looked at once for all of its elements that matter.

An element that isn't finite came, where that explains it, from operands that aren't either: of the
elements it depends on only those are followed, of a NaN those that are NaN if there are any.
Doesn't follow how often loops went round, or random states.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePath
from typing import Any, Final

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.dtypes.casts import converter
from nki_dist.insight.capture import Captured
from nki_dist.insight.log import Log
from nki_dist.insight.probe import Odd, Probe, not_finite, unrepresentable
from nki_dist.insight.regions import Region, index_sources, read_registers, written_keys
from nki_dist.insight.replay import Key, key_of
from nki_dist.insight.sources import Sources
from nki_dist.insight.steps import Source, Step, index_in
from nki_dist.isa import INSTRUCTIONS

AHEAD: Final = 2000  # instructions that a replay keeps for the walk
Elements = list[tuple[int, Region, np.ndarray]]  # instruction, operand, numbers in it


class Walk:
    """One walk back, from bytes of a memory as they were before a number.

    Args:
        key, places: the memory, and (sorted) bytes in it.
        before: that number; None for the end of the launch.
        limit: instructions after which it ends; None for never.
        trusted: by memory and last number of a write, (sorted) bytes behind which nobody looks.
        odd: say what is odd of each step (`Step.odd`).

    Attributes:
        steps: what was written that matters, later steps first.
        sources: what was read that no instruction of the launch wrote.
        complete: False if the walk ended at its limit.
    """

    def __init__(
        self,
        log: Log,
        key: Key,
        places: np.ndarray,
        before: int | None,
        limit: int | None,
        trusted: Mapping[tuple[Key, int], np.ndarray] | None = None,
        odd: bool = False,
    ) -> None:
        self._log, self._odd = log, odd
        self._trusted = trusted or {}
        self._captured = Captured(log)
        self._keys: dict[tuple[int, int], tuple[set[Key], set[Key]]] = {}
        # By the last number of an instruction or rendezvous: what is wanted of it, and who reads
        # it.
        self._places: dict[int, dict[Key, list[np.ndarray]]] = {}
        self._readers: dict[int, list[Step]] = {}
        self._heap: list[int] = []
        self.steps: list[Step] = []
        self.sources = Sources(log.launched)
        self._resolve(key, places, before, [])
        while self._heap and (limit is None or len(self.steps) < limit):
            last = -heapq.heappop(self._heap)
            self._look(last, self._places.pop(last), self._readers.pop(last))
        self.complete = not self._heap

    def value(self) -> Any:
        """The number that was asked for."""
        found = [s.values for s in self.steps[:1]] + [s.values for s in self.sources.all()[:1]]
        return found[0].reshape(-1)[0] if found and found[0].size else None

    # ---- who wrote it ---------------------------------------------------------------------------

    def _resolve(
        self, key: Key, places: np.ndarray, before: int | None, readers: list[Step]
    ) -> None:
        """Find the writes that left these (sorted) bytes, and note what is wanted of them."""
        for end, part in self._log.left_by(key, places, before):
            if end is None:
                source = self.sources.add(key, part)
                for step in readers:
                    if source not in step.reads:
                        step.reads.append(source)
                return
            part = part[~np.isin(part, self._trusted.get((key, end), ()))]
            if part.size:
                self._note(end, key, part, readers)

    def _note(self, end: int, key: Key, places: np.ndarray, readers: list[Step]) -> None:
        if end not in self._places:
            self._places[end] = {}
            self._readers[end] = []
            heapq.heappush(self._heap, -end)
        self._places[end].setdefault(key, []).append(places)
        self._readers[end] += [s for s in readers if s not in self._readers[end]]

    # ---- what it depends on ---------------------------------------------------------------------

    def _look(self, end: int, places: dict[Key, list[np.ndarray]], readers: list[Step]) -> None:
        log = self._log
        number = log.begun.get(end, end)
        bytes_of = {key: np.unique(np.concatenate(parts)) for key, parts in places.items()}
        if any(key[0] == "register" for key in bytes_of):
            self._register(number, readers)
            return
        members = log.rendezvous(number)
        probe = Probe(self._captured.of(number, islice(self._ahead(end, members), AHEAD)))
        targets = self._targets(probe, members.index(number), bytes_of)
        if not targets:
            return
        assert probe.run()
        results = [(n, elements, probe.values(n, elements)) for n, elements in targets]
        odd = [not_finite(v) for _, _, v in results]
        bad = all(o.all() for o in odd)
        calm = any(o.any() for o in odd)
        influence = probe.influence(targets, not_finite if calm else None)
        depends = []
        for operand, masks in zip(probe.inputs, influence):
            for (n, r, _), mask in zip(operand.members, masks):
                elements, read = np.flatnonzero(mask), log.parts_read(members[n], r)
                if read is not None:
                    elements = elements[np.isin(r.places[elements], read)]
                depends += [(members[n], r, elements)] if elements.size else []
        born, explaining = False, []
        if bad:
            every_nan = all(np.isnan(v).all() for _, _, v in results)
            nan = self._explaining(depends, np.isnan) if every_nan else []
            explaining = nan or self._explaining(depends, not_finite)
            # Of infinities a NaN is made, too.
            born = bool(depends) and not (nan if every_nan else explaining)
            depends = explaining or depends
        steps = self._steps_of(number, probe, results, born, depends)
        for step in readers:
            step.reads += steps
        if self._odd:
            for s, (_, elements, values) in zip(steps, results):
                s.odd += unrepresentable(self._captured.found[number], elements, values)
                s.odd += self._added_to(number, depends)
        for member, r, elements in depends:
            self._resolve(r.key, r.bytes_of(elements), log.before(member), steps)
        if not (bad and explaining):
            for member in members:
                self._addresses(member, steps)

    def _targets(
        self, probe: Probe, member: int, bytes_of: dict[Key, np.ndarray]
    ) -> list[tuple[int, np.ndarray]]:
        """Outputs and the elements in them that are wanted; what is written last stays."""
        left, targets = dict(bytes_of), []
        for n, (who, r) in reversed(list(enumerate(probe.outputs))):
            places = left.get(r.key)
            if who != member or places is None or not places.size:
                continue
            elements = r.covering(places)
            if elements.size:
                targets.append((n, elements))
                left[r.key] = places[~r.holds(places)]
        return targets

    def _explaining(self, depends: Elements, test: Odd) -> Elements:
        """Those of the elements that non-finite ones depend on that aren't finite themselves."""
        explaining = []
        for number, r, elements in depends:
            values = r.values(self._captured.found[number].bits[id(r)]).reshape(-1)[elements]
            odd = np.asarray(test(values))
            if odd.any():
                explaining.append((number, r, elements[odd]))
        return explaining

    def _steps_of(
        self,
        number: int,
        probe: Probe,
        results: list[tuple[int, np.ndarray, np.ndarray]],
        born: bool,
        depends: Elements,
    ) -> list[Step]:
        steps, who = [], self._log.who(number)
        passes = INSTRUCTIONS[self._log.at(number).opcode].effects.bits is not None
        for n, elements, values in results:
            _, r = probe.outputs[n]
            at = r.storage.title, number, index_in(r.storage, int(r.places[elements[0]]))
            moved = passes and self._same(depends, values, r.dtype)
            step = Step(*who, *at, elements.size, values, moved, born)
            step.elements = r.places[elements] // r.storage.dtype.itemsize
            step.shape, step.dtype = r.storage.shape, str(r.dtype)
            steps.append(step)
        self.steps += steps
        return steps

    def _same(self, depends: Elements, values: np.ndarray, dtype: DType) -> bool:
        """Whether these values are those that they depend on, as their type holds them."""
        if sum(elements.size for _, _, elements in depends) != values.size:
            return False
        found = []
        for n, r, elements in depends:
            if r.dtype is not dtype and (r.dtype.is_mx or dtype.is_mx):
                return False
            read = self._captured.found[n].bits[id(r)].reshape(-1)[elements].view(r.dtype.storage)
            converted = np.empty(read.shape, dtype.storage)
            with np.errstate(all="ignore"):
                converter(r.dtype, dtype)(converted, read)
            found.append(converted.view(dtype.raw))
        raw = np.ascontiguousarray(values).view(dtype.raw)
        return bool(np.array_equal(np.sort(np.concatenate(found)), np.sort(raw)))

    def _added_to(self, number: int, depends: Elements) -> Iterator[str]:
        """Of a matmul: something had been made of what it adds to before."""
        log = self._log
        if not log.at(number).accumulation:
            return
        sums = {r.key: r for r in log.writes(number)}
        for _, r, elements in depends:
            if r.key in sums:
                places = r.bytes_of(elements)
                for end, taken in log.left_by(r.key, places, number):
                    reader = log.reader(r.key, taken, end or 0, number)
                    if reader is not None:
                        line = PurePath(log.who(reader)[0] or "?").name
                        yield f"added to what {line} had read before (step {reader})"
                        return

    def _register(self, number: int, readers: list[Step]) -> None:
        """A register was written: everything that was read counts."""
        step = Step(*self._log.who(number), "a register", number, (), 1, np.empty(0))
        self.steps.append(step)
        for reader in readers:
            reader.reads.append(step)
        for r in self._log.reads(number):
            self._resolve(r.key, r.bytes_of(np.arange(r.places.size)), number, [step])
        self._addresses(number, [step])

    def _addresses(self, number: int, steps: list[Step]) -> None:
        """Registers and tensors that the addresses of an instruction were read from."""
        log = self._log
        slot, original = log.launched.slots[log.cores[number]], log.original(number)
        for key in read_registers(slot, original):
            self._resolve(key, np.zeros(1, np.int64), number, steps)  # a register has no bytes
        for r in log.regions(number, index_sources(original)):
            self._resolve(r.key, r.bytes_of(np.arange(r.places.size)), number, steps)

    # ---- values ---------------------------------------------------------------------------------

    def _ahead(self, end: int, members: Sequence[int]) -> Iterator[int]:
        """What may be asked for next, back from a number."""
        log = self._log
        keys = {key for places in self._places.values() for key in places}
        keys.update(*(self._memories(n)[0] for n in members))
        for at in range(end, -1, -1):
            n = log.begun.get(at, at)
            if log.instructions[n] is not None and self._memories(n)[1] & keys:
                keys.update(
                    key for member in log.rendezvous(n) for key in self._memories(member)[0]
                )
                yield n

    def _memories(self, number: int) -> tuple[set[Key], set[Key]]:
        """The memories that an instruction may depend on, and those that it writes."""
        log = self._log
        core, i = log.cores[number], log.at(number)
        cached = self._keys.get((core, i.ordinal))
        if cached is None:
            slot, original = log.launched.slots[core], log.original(number)
            written = set(written_keys(slot, i))
            reads = {key_of(slot, a.storage) for a in INSTRUCTIONS[i.opcode].reads(original)}
            reads.update(written, read_registers(slot, original))
            cached = self._keys[core, i.ordinal] = reads, written
        return cached


def first_bad(steps: Sequence[Step]) -> tuple[Step | None, str]:
    """The step of a way back that made the first number that isn't finite, or else the first that
    read what nobody had written, and what it did; None if there is no such step."""
    born = [s for s in steps if s.made_non_finite]
    if born:
        return min(born, key=lambda s: s.step), (
            "it made a number that isn't finite of numbers that are, or NaN of infinities"
        )
    for s in reversed(steps):
        for r in s.reads:
            if isinstance(r, Source) and r.kind == "unwritten":
                return s, f"it read {r.name} where nobody had written"
    return None, ""


def first_to_look_at(steps: Sequence[Step]) -> tuple[Step | None, str]:
    """The step of a way back to look at first, and why: the reasons that docs/records.md numbers
    ("Where a number came from"). None where nothing was written."""
    bad, why = first_bad(steps)
    if bad is not None:
        return bad, why
    for s in steps:
        if not s.moved:
            return s, "it made this number; what follows only moved it"
    if steps:
        return steps[0], "nothing was computed: the number was only moved"
    return None, "nothing in the launch wrote it"
