"""Which change of one line makes the results what they should be.

Every line of the kernel is changed in the ways that authors mistake (`changes`,
`operand_changes`), the launch is carried out again with it, and its results are compared with
those expected. A change that makes all wrong elements right and no right one wrong is an
explanation: the line is the one to look at. Of several explanations the one that supposes least is
named; of equal ones the one that is carried out first.

An explanation isn't a proof. Two mistakes in two lines have none, nor has a line that is missing
and that no line beside it can make up for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

import numpy as np

from nki_dist.compiler.passes.low_precision import LOW, key_of, own_float_storages
from nki_dist.compiler.widen import with_float32
from nki_dist.insight.capture import bytes_looked_at
from nki_dist.insight.changes import ADDED, OTHER, PLAIN, Change, Path, attribute_changes, left_out
from nki_dist.insight.constants import constants, fitted
from nki_dist.insight.log import Log
from nki_dist.insight.operand_changes import operand_changes
from nki_dist.insight.replay import Launched
from nki_dist.insight.steps import Step
from nki_dist.insight.trial import Name, Trial, in_time
from nki_dist.insight.wanted import Wanted
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, instructions
from nki_dist.program.walk import operands

# What all trials together may take, about two minutes, counted by these rates and not by a clock,
# so that the answer is the same on every machine.
WORK: Final = 120_000_000_000
INSTRUCTION_NS: Final = 30_000  # to link and carry out an instruction
BYTE_NS: Final = 0.5  # of its operands
SINGLE: Final = 4  # rounds of a line that are tried one by one
PLACES: Final = 4  # instructions past which a line is moved
PATIENCE: Final = 50  # times the launch's own duration after which a trial is given up, or 5 s

EXPLAINED: Final = 0.02  # share of the error that an explanation may leave
EXACT: Final = 1e-3  # that of one that leaves nothing worth mentioning


@dataclass
class Line:
    """What is carried out from one kernel line by one kind of instruction.

    Attributes:
        where, opcode: the line and the kind.
        rounds: by core of a rank, its instructions in program order.
        steps: numbers of those that the element depends on, the last first.
    """

    where: str | None
    opcode: str
    rounds: dict[int, list[Instruction]]
    steps: list[int]

    @property
    def first(self) -> Instruction:
        return next(iter(self.rounds.values()))[0]

    @property
    def several(self) -> bool:
        return any(len(r) > 1 for r in self.rounds.values())

    def names(self) -> dict[Name, int]:
        """Its instructions, and the round that each is of."""
        return {(core, i.ordinal): n for core, r in self.rounds.items() for n, i in enumerate(r)}


@dataclass(frozen=True)
class Repair:
    """A change that explains the results.

    Attributes:
        what: the change.
        where: the kernel line, and the `instruction` there.
        number: of the first such instruction that the element depends on.
        everything: all that is wrong becomes right; otherwise the element that was asked about,
            and nothing that is right becomes wrong.
    """

    what: str
    where: str | None
    instruction: str
    number: int
    everything: bool
    rank: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.where} {self.instruction}: {self.what}"


class Repairs:
    """Looks for explanations.

    Args:
        steps: the way that the element has come.
        output: where it is returned.
        until: the output is a tensor inside the launch, as this instruction (by core of the world)
            leaves it; only lines of `steps` are changed then.

    Attributes:
        found: the explanations.
        ended: whether the work ended before everything was tried.
    """

    def __init__(
        self,
        log: Log,
        steps: Sequence[Step],
        output: Access,
        wanted: Wanted,
        until: Name | None = None,
    ) -> None:
        self._log, self._output, self._wanted, self._until = log, output, wanted, until
        began = monotonic()
        asis = Trial(log.launched, output, until=until)
        took = monotonic() - began
        self._launched = in_time(log.launched, max(5.0, PATIENCE * took))
        picked = wanted.picked(asis.outputs)
        raw = wanted.errors(picked)
        self.wrong = wanted.asked(raw)
        self._before = wanted.beyond_rounding(raw, self.wrong)
        self._work = float(WORK)
        every = [n for n, i in enumerate(log.instructions) if i is not None]
        self._size = sum(INSTRUCTION_NS + BYTE_NS * bytes_looked_at(log, n) for n in every)
        self._lines = self._all_lines(steps)
        self.found: list[Repair] = []
        self.ended = False

    def run(self) -> list[Repair]:
        """All explanations that were found, the best first; those that suppose least are looked for
        first, and others only while there is none of everything."""
        if not self._before.any():
            return []  # nothing is wrong
        for supposes in (PLAIN, OTHER, ADDED):
            for single in (False, True):
                for line in self._lines:
                    self._try_line(line, supposes, single)
                if any(r.everything for r in self.found) or self.ended:
                    return self._sorted()
            if supposes == OTHER:
                self._try_types()
                self._try_order()
                if any(r.everything for r in self.found):
                    return self._sorted()
        return self._sorted()

    def _sorted(self) -> list[Repair]:
        self.found.sort(key=lambda r: r.rank)
        return self.found

    # ---- lines ----------------------------------------------------------------------------------

    def _all_lines(self, steps: Sequence[Step]) -> list[Line]:
        lines: dict[tuple[str | None, str], Line] = {}
        for core, program in enumerate(self._log.launched.compiled.programs):
            for i in instructions(program.body):
                key = (program.where(i.location), i.opcode)
                line = lines.setdefault(key, Line(*key, {}, []))
                line.rounds.setdefault(core, []).append(i)
        for step in steps:
            i = self._log.at(step.step)
            lines[step.location, i.opcode].steps.append(step.step)
        # Lines that the element doesn't depend on may have failed to write it.
        every = [line for line in lines.values() if line.steps or self._until is None]
        return sorted(every, key=lambda line: not line.steps)

    def _changes(self, line: Line, i: Instruction) -> Iterator[Change]:
        yield from attribute_changes(i, line.several)
        yield from left_out(i)
        programs = self._launched.compiled.programs
        yield from operand_changes(i, programs, line.several)

    def _try_line(self, line: Line, supposes: int, single: bool) -> None:
        for i, rounds in self._chosen(line, single):
            for change in self._changes(line, i):
                if change.supposes == supposes and not self.ended:
                    self._try(line, change, rounds, single)
            for path in constants(i):
                if not self.ended:
                    self._fit(line, i, path, rounds, supposes, single)

    def _chosen(self, line: Line, single: bool) -> Iterator[tuple[Instruction, dict[Name, int]]]:
        """All rounds of a line at once, or some of them one by one, and an instruction of each."""
        names = line.names()
        if not single:
            yield line.first, names
        elif line.several:
            numbers = {self._name(n): n for n in line.steps}
            for name, number in list(numbers.items())[:SINGLE]:
                yield self._log.original(number), {name: names[name]}

    def _name(self, number: int) -> Name:
        slot = self._launched.slots[self._log.cores[number]]
        return slot.lnc_core, self._log.at(number).ordinal

    # ---- trials ---------------------------------------------------------------------------------

    def _carried_out(
        self,
        change: Change | None = None,
        rounds: dict[Name, int] | None = None,
        swaps: dict[Name, Instruction] | None = None,
        launched: Launched | None = None,
    ) -> np.ndarray | None:
        self._work -= self._size
        if self._work < 0:
            self.ended = True
            return None
        what = launched or self._launched, self._output, change, rounds, swaps, self._until
        outputs = Trial(*what).outputs
        return self._wanted.picked(outputs) if outputs else None

    def _try(self, line: Line, change: Change, rounds: dict[Name, int], single: bool) -> None:
        picked = self._carried_out(change, rounds)
        if picked is not None:
            self._judge(line, change.what, change.supposes, single, picked)

    def _judge(
        self, line: Line, what: str, supposes: int, single: bool, picked: np.ndarray
    ) -> bool:
        """Note a change if it explains what is wrong."""
        wanted, before = self._wanted, self._before
        raw = wanted.errors(picked)
        after = wanted.beyond_rounding(raw, self.wrong)
        if wanted.asked(after):
            return False
        total = float(before.sum())
        left = float(after.sum()) / total
        broken = float(np.maximum(after - before, 0).sum()) / total
        everything = left <= EXPLAINED
        if not everything and broken > EXPLAINED:
            return False
        number = min(line.steps) if line.steps else self._number(line)
        rank = (
            not everything,
            0 if left <= EXACT else 1 if everything else 1 + round(4 * left),
            supposes,
            single,
            not line.steps,
            INSTRUCTIONS[line.opcode].effects.bits is not None,
            number,
        )
        title = INSTRUCTIONS[line.opcode].title
        self.found.append(Repair(what, line.where, title, number, everything, rank))
        return True

    def _number(self, line: Line) -> int:
        names = line.names()
        found = (n for n, i in enumerate(self._log.instructions) if i is not None)
        return next((n for n in found if self._name(n) in names), -1)

    # ---- constants ------------------------------------------------------------------------------

    def _fit(
        self,
        line: Line,
        i: Instruction,
        path: Path,
        rounds: dict[Name, int],
        supposes: int,
        single: bool,
    ) -> None:
        """The number in place of a constant with which the element is as expected."""

        def result(change: Change) -> np.ndarray | None:
            return self._carried_out(change, rounds)

        if supposes == OTHER:  # those that suppose this were met when PLAIN ones were looked for
            return
        dims = {n for p in self._launched.compiled.programs for s in p.storages for n in s.shape}
        for change in fitted(i, path, self._wanted, result, dims):
            if change.supposes == supposes or (supposes == PLAIN and change.supposes == OTHER):
                picked = result(change)
                if picked is not None:
                    self._judge(line, change.what, change.supposes, single, picked)

    # ---- the kernel as a whole ------------------------------------------------------------------

    def _try_types(self) -> None:
        """Tensors of low precision that hold float32 instead."""
        compiled = self._launched.compiled
        programs = compiled.programs
        wide = own_float_storages(programs)
        shown = {a.storage.number for a in (self._output,)}
        # The line that rounds most often is the one to look at.
        for line in sorted(self._lines, key=lambda line: -len(line.steps)):
            for a in INSTRUCTIONS[line.opcode].writes(line.first):
                s, key = a.storage, key_of(programs[0].core, a.storage)
                if s.dtype not in LOW or key not in wide or s.number in shown:
                    continue
                if s.role == "input" or self.ended:
                    continue
                shown.add(s.number)
                made = [with_float32(p, frozenset({key_of(p.core, s)})) for p in programs]
                changed = replace(self._launched, compiled=replace(compiled, programs=made))
                picked = self._carried_out(launched=changed)
                if picked is not None:
                    what = f"{s.title} in float32 in place of {s.dtype}"
                    self._judge(line, what, OTHER, False, picked)

    def _try_order(self) -> None:
        """Lines that are carried out a few instructions later or earlier."""
        for line in self._lines:
            if not line.steps:
                continue
            for by in [*range(1, PLACES + 1), *range(-PLACES, 0)]:
                swaps = self._moved(line, by)
                if not swaps or self.ended:
                    continue
                picked = self._carried_out(None, None, swaps)
                if picked is not None:
                    count = "1 instruction" if abs(by) == 1 else f"{abs(by)} instructions"
                    how = f"{count} {'later' if by > 0 else 'earlier'}"
                    self._judge(line, how, OTHER, False, picked)

    def _moved(self, line: Line, by: int) -> dict[Name, Instruction]:
        """What is carried out in place of what if every round is carried out so much later."""
        swaps: dict[Name, Instruction] = {}
        for core, rounds in line.rounds.items():
            program = self._launched.compiled.programs[core]
            order = [i for i in program.body if isinstance(i, Instruction)]
            places = {i.ordinal: n for n, i in enumerate(order)}
            for i in rounds:
                at = places.get(i.ordinal)
                if at is None or not 0 <= at + by < len(order):
                    continue
                low, high = sorted((at, at + by))
                block = order[low : high + 1]
                if any(_stays(j) for j in block) or any((core, j.ordinal) in swaps for j in block):
                    continue
                turned = [*block[1:], block[0]] if by > 0 else [block[-1], *block[:-1]]
                swaps.update({(core, a.ordinal): b for a, b in zip(block, turned)})
        return swaps


def _stays(i: Instruction) -> bool:
    dynamic = any(a.dynamic is not None for _, a in operands(i.args))
    return dynamic or INSTRUCTIONS[i.opcode].synchronises


__all__ = ["Repair", "Repairs"]
