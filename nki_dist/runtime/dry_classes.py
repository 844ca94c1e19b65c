"""Dry runs in which ranks that do the same are run once, and by themselves.

A rank is run with all its cores, which meet, send and wait as ever; what it would exchange with
other ranks in collectives is left out. Ranks are of one class if they get the same arrays where
these have contents, take part in the same collectives, and are the same rank if what is carried out
looks at where it runs. One of each class is run, and if every class comes to its end by the same
exchanges in the same order, that is the report of all.

Where numbers of ranks only say which place of a tensor an instruction touches, ranks needn't be run
one by one either. Places that are inside for the first and for the last rank of the world are also
inside for all between them, so a class is run twice, with each of these instead of every rank that
it asks for. If one is outside, all ranks are run.

Why the run of all would end, too: no value comes from another rank (else there are no classes), so
every rank executes what its class does. Take the run of one rank as an order of its steps. Were the
run of all stuck, look at the first exchange in that order that somebody waits in. Everybody who is
part of it comes to it, as nobody waits in an earlier one; with the same number among those of its
group, as all have executed the same; and says the same of it, as all have the same program. Then
its algorithm ends: a contradiction. Nothing is sent that nobody takes, for the same reason.

What members of a class may differ in: their numbers, and how many messages their place in a group
makes them send, which is counted for each (`collectives.alone`).

Where classes differ in what they exchange, or one comes to no good end, and where values travel,
all ranks are run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from nki_dist import arch
from nki_dist.collectives.alone import Alone
from nki_dist.compiler.passes.skeleton import Skeleton, loops, registers_of
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Block, Instruction, Loop, instructions
from nki_dist.program.walk import operands
from nki_dist.runtime.dry import DryCores, exchanges, rank_registers, with_values
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.progress import sampled
from nki_dist.runtime.unread import check_messages
from nki_dist.timing.footprint import moving_registers
from nki_dist.timing.registers import registers_read, registers_written

LOOKED_AT: Final = 1 << 16  # bytes of an array that is compared by its contents


def run_classes(
    slots: Sequence[CoreSlot],
    skeleton: Skeleton,
    inputs: Sequence[Sequence[np.ndarray]],
    timeout: float | None,
    since: float,
) -> list[CoreReport] | None:
    """What every core reports, in order; None if all of them must be run.

    Args:
        slots: every core of the world, rank after rank.
        inputs, timeout, since: see DryCores.

    Raises:
        DeadlockError: the time is up.
        CollectiveMismatchError: a core sent more than its partner received.
    """
    if len(inputs) < 2 or _values_travel(skeleton):
        return None
    ranks = _Ranks(slots, skeleton, inputs, timeout, since)
    with sampled(len(slots), ranks.progress):
        try:
            return ranks.reports()
        except NkiError as error:
            if error.code == "timeout":
                raise
            return None


def _values_travel(skeleton: Skeleton) -> bool:
    """Whether what cores compute could depend on another rank, or on which core goes first."""
    if any(with_values(skeleton)):
        return True
    written = skeleton.written
    for program, contents in zip(skeleton.programs, skeleton.contents, strict=True):
        shared = (s for s in program.storages if s.number in contents and program.cores > 1)
        if any(s.role == "shared" or (s.role == "input" and s.index in written) for s in shared):
            return True
    return False


def _only_addresses(skeleton: Skeleton) -> bool:
    """Whether numbers of ranks decide nothing but which places of tensors are touched.

    What is carried out and uses one in any way could make another value of it.
    """
    for program, real in zip(skeleton.programs, skeleton.real, strict=True):
        every = list(instructions(program.body))
        ranks = {number for i in every for number in rank_registers(i)}
        used = {r.number for loop in loops(program.body) for r in registers_of(loop)}
        for i in every:
            spec = INSTRUCTIONS[i.opcode]
            if i.ordinal in real and not rank_registers(i):
                used |= registers_read(i, spec)
                used |= moving_registers([a for _, a in operands(i.args)])
                used.update(registers_written(i, spec))
        if not ranks.isdisjoint(used):
            return False
    return True


class _Ran(NamedTuple):
    """How a rank fared by itself.

    Attributes:
        reports: of its cores.
        begun: of each core, ordinals of the collectives that it has been through.
    """

    reports: list[CoreReport]
    begun: tuple[tuple[int, ...], ...]


class _Ranks:
    """The ranks of a world, run by class."""

    def __init__(
        self,
        slots: Sequence[CoreSlot],
        skeleton: Skeleton,
        inputs: Sequence[Sequence[np.ndarray]],
        timeout: float | None,
        since: float,
    ) -> None:
        self.slots = slots
        self.skeleton = skeleton
        self.inputs = inputs
        self.timeout, self.since = timeout, since
        self.lnc = len(skeleton.programs)
        self.known = sorted(
            {
                s.index
                for program, contents in zip(skeleton.programs, skeleton.contents, strict=True)
                for s in program.storages
                if s.role == "input" and s.number in contents
            }
        )
        self.exchanges = exchanges(skeleton)
        platform = arch.get(skeleton.programs[0].platform)
        self.alone = Alone(slots[0], platform, chain(*self.exchanges))
        self.contents: dict[int, Hashable] = {}  # of arrays, by identity
        self.done = 0
        self.finished = 0  # cores
        self.current: DryCores | None = None  # what is run
        self.by_rank = False  # what is carried out looks at where it runs
        asks = any(rank_registers(i) for p in skeleton.programs for i in instructions(p.body))
        self.ends: tuple[int | None, ...] = (None,)  # instead of the ranks that are asked for
        if asks and _only_addresses(skeleton):
            self.ends = 0, len(inputs) - 1

    def reports(self) -> list[CoreReport] | None:
        """As `run_classes`."""
        found: dict[Hashable, _Ran] = {}
        by_rank: list[_Ran] = []
        for rank in range(len(self.inputs)):
            key = self._class(rank)
            ran = found.get(key)
            if ran is None:
                ran, *_ = [self._run_as(rank, end) for end in self.ends]
                found[self._class(rank)] = ran
            by_rank.append(ran)
            self.finished += self.lnc
        if len({ran.begun for ran in found.values()}) > 1:
            return None
        for ran in found.values():
            check_messages(ran.reports, self.lnc)
        return [report for rank, ran in enumerate(by_rank) for report in self._all(rank, ran)]

    def progress(self) -> tuple[int, int]:
        """Instructions carried out and cores known to finish; any thread may ask."""
        current = self.current
        return self.done + (current.progress()[0] if current else 0), self.finished

    def _class(self, rank: int) -> Hashable:
        arrays = tuple([self._content(self.inputs[rank][index]) for index in self.known])
        parts = tuple([self.alone.is_part(i, rank) for mine in self.exchanges for i in mine])
        return arrays, parts, rank if self.by_rank else -1

    def _content(self, array: np.ndarray) -> Hashable:
        """Equal for arrays with equal contents, if they are small enough to be looked at."""
        found = self.contents.get(id(array))
        if found is None:
            small = array.nbytes <= LOOKED_AT
            found = (array.tobytes(), array.shape, str(array.dtype)) if small else id(array)
            self.contents[id(array)] = found
        return found

    def _run_as(self, rank: int, asked: int | None) -> _Ran:
        slots = self.slots[rank * self.lnc : (rank + 1) * self.lnc]
        self.alone.begun = [[] for _ in slots]
        cores = DryCores(
            slots, self.skeleton, self.inputs, self.alone, self.timeout, self.since, asked
        )
        self.current = cores
        reports = cores.run()
        self.current = None
        self.done += sum(r.done for r in reports)
        self.by_rank |= cores.looked
        return _Ran(reports, tuple(map(tuple, self.alone.begun)))

    def _all(self, rank: int, ran: _Ran) -> Iterator[CoreReport]:
        """What the cores of a rank report, as its class did."""
        for n, report in enumerate(ran.reports):
            slot = self.slots[rank * self.lnc + n]
            sent = self._sent(slot, report)
            yield CoreReport(slot.core, report.trips, report.done, report.messages + sent, 0, 0.0)

    def _sent(self, slot: CoreSlot, report: CoreReport) -> int:
        mine = self.exchanges[slot.lnc_core]
        if not report.trips:  # each once
            return sum([self.alone.sent(i, slot) for i in mine])
        times = executions(self.skeleton.programs[slot.lnc_core].body, iter(report.trips))
        return sum(times[i.ordinal] * self.alone.sent(i, slot) for i in mine if times[i.ordinal])


def executions(block: Block, trips: Iterator[int]) -> Counter[int]:
    """How often each instruction was executed, by ordinal.

    Args:
        trips: see Executor.
    """
    found: Counter[int] = Counter()
    for item in block:
        if isinstance(item, Instruction):
            found[item.ordinal] += 1
            continue
        rounds = next(trips)
        if any(isinstance(inner, Loop) for inner in item.body):
            for _ in range(rounds):
                found += executions(item.body, trips)
        else:
            found.update({i.ordinal: rounds for i in instructions(item.body)})
    return found
