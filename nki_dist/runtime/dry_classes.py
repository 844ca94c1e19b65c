"""Dry runs in which ranks that do the same are run once, and by themselves.

A rank is run with all its cores, which meet, send and wait as ever; what it would exchange with
other ranks in collectives is left out. Ranks are of one class if they get the same arrays where
these have contents, take part in the same collectives, and are the same rank if what is carried out
looks at where it runs. One of each class is run, and if every class comes to its end by the same
exchanges in the same order, that is the report of all.

Where numbers of ranks only say which place of a tensor an instruction touches, ranks needn't be run
one by one either. Places that are inside for the first and for the last rank of the world are also
inside for all between them, so a class is run twice, with each of these instead of every rank that
it asks for. If one is outside, each rank is a class of its own.

Why the run of all would end, too: no value comes from another rank (else there are no classes), so
every rank executes what its class does. Take the run of one rank as an order of its steps. Were the
run of all stuck, look at the first exchange in that order that somebody waits in. Everybody who is
part of it comes to it, as nobody waits in an earlier one; with the same number among those of its
group, as all have executed the same; and says the same of it, as all have the same program. Then
its algorithm ends: a contradiction. Nothing is sent that nobody takes, for the same reason.

What members of a class may differ in: their numbers, and how many messages their place in a group
makes them send, which is counted for each (`collectives.alone`).

Where classes differ in what they exchange, or one comes to no good end, `dry_rendezvous` tells how
far each rank comes. A class is then run again, up to there: so its cores stand where those of all
its members would. Where that isn't known, and where values travel, all ranks are run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from nki_dist import arch
from nki_dist.collectives.alone import Alone
from nki_dist.collectives.party import CHANNEL
from nki_dist.compiler.passes.skeleton import Skeleton, counts_of, registers_of
from nki_dist.errors import NkiError, OutOfBoundsError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Block, Instruction, Loop, instructions, loops
from nki_dist.program.walk import operands
from nki_dist.runtime.deadlock import deadlock
from nki_dist.runtime.dry import DryCores, exchanges, rank_registers
from nki_dist.runtime.dry_rendezvous import Log, Reached, Rendezvous
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.messages import Message, Wait
from nki_dist.runtime.progress import sampled
from nki_dist.runtime.unread import check_messages
from nki_dist.timing.footprint import moving_registers
from nki_dist.timing.registers import registers_read, registers_written

LOOKED_AT: Final = 1 << 16  # bytes of an array that is compared by its contents


def run_classes(
    slots: Sequence[CoreSlot],
    skeleton: Skeleton,
    inputs: Sequence[Sequence[np.ndarray]],
    timeout: float | None = None,
) -> list[CoreReport] | None:
    """What every core reports, in order; None if all of them must be run.

    Args:
        slots: every core of the world, rank after rank.
        inputs, timeout: see DryCores.

    Raises:
        NkiError: what the run of all would raise.
    """
    if len(inputs) < 2 or _values_travel(skeleton):
        return None
    ranks = _Ranks(slots, skeleton, inputs, timeout)
    with sampled(len(slots), ranks.progress):
        return ranks.reports()


def _values_travel(skeleton: Skeleton) -> bool:
    """Whether what cores compute could depend on another rank, or on which core goes first."""
    for real, mine in zip(skeleton.real, exchanges(skeleton), strict=True):
        if any(i.ordinal in real or counts_of(i) is not None for i in mine):
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


@dataclass
class _Ran:
    """How a rank fared by itself.

    Attributes:
        reports: of its cores, if they came to their end.
        begun: of each core, ordinals of the collectives that it has been through.
        error: that ended it.
        rest: how its cores wait for each other, or stop.
    """

    rank: int
    reports: list[CoreReport] = field(default_factory=list)
    begun: tuple[Log, ...] = ()
    error: NkiError | None = None
    rest: list[Wait] = field(default_factory=list)

    @property
    def ends(self) -> bool:
        """Whether its cores come to their end by themselves."""
        return self.error is None and not self.rest

    @cached_property
    def way(self) -> Hashable:
        """Equal for ranks whose cores execute the same instructions."""
        if not self.ends:
            return id(self)
        return self.begun, tuple([tuple(report.trips) for report in self.reports])


class _Ranks:
    """The ranks of a world, run by class."""

    def __init__(
        self,
        slots: Sequence[CoreSlot],
        skeleton: Skeleton,
        inputs: Sequence[Sequence[np.ndarray]],
        timeout: float | None,
    ) -> None:
        self.slots = slots
        self.skeleton = skeleton
        self.inputs = inputs
        self.timeout = timeout, time.monotonic()
        self.lnc = len(skeleton.programs)
        self.with_contents = sorted(
            {
                s.index
                for program, contents in zip(skeleton.programs, skeleton.contents, strict=True)
                for s in program.storages
                if s.role == "input" and s.number in contents
            }
        )
        self.exchanges = exchanges(skeleton)
        platform = arch.get(skeleton.programs[0].platform)
        self.alone = Alone(slots[0], platform, [i for mine in self.exchanges for i in mine])
        self.by_ordinal = [{i.ordinal: i for i in mine} for mine in self.exchanges]
        self.contents: dict[int, Hashable] = {}  # of arrays, by identity
        self.equal: dict[int, tuple[Any, Mapping[int, tuple[int, ...]]]] = {}
        self.whats: dict[Hashable, dict[str, Any]] = {}  # descriptions, by whose and of which group
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
                ran = self._run(rank)
                found[self._class(rank)] = ran
            by_rank.append(ran)
            self.finished += self.lnc
        orders = {ran.begun for ran in found.values()}
        if len(orders) > 1 or not all(ran.ends for ran in found.values()):
            logs = [ran.begun for ran in by_rank]
            reached = Rendezvous(self.alone, self.exchanges, logs).reached()
            if reached is None:
                return None
            self._raise(by_rank, reached)
        for ran in found.values():
            check_messages(ran.reports, self.lnc)
        return [report for rank, ran in enumerate(by_rank) for report in self._all(rank, ran)]

    def _raise(self, by_rank: Sequence[_Ran], reached: Reached) -> None:
        """Nothing, if all ranks come to their end.

        Raises:
            NkiError: the first failure of any, or how they wait for each other.
        """
        again: dict[Hashable, _Ran] = {}
        waits: list[Wait] = []
        finished: list[int] = []
        for rank, (ran, stops) in enumerate(zip(by_rank, reached.stops, strict=True)):
            key = ran.way, tuple(stops.items())
            if key not in again:
                again[key] = self._run_until(rank, stops) if stops or ran.error else ran
            place = again[key]
            if place.error is not None:
                raise place.error
            away = self._moved(place, rank, ran.begun, stops)
            away = [w._replace(met=self._letter(w, reached)) if not w.met else w for w in away]
            waits += away
            waiting = {w.core for w in away}
            cores = range(rank * self.lnc, (rank + 1) * self.lnc)
            finished += [core for core in cores if core not in waiting]
        if waits:
            raise deadlock(waits, finished)

    def _letter(self, wait: Wait, reached: Reached) -> Message | None:
        """What a core got in place of the message that it waits for."""
        rank, core = divmod(wait.core, self.lnc)
        letter = reached.met.get((rank, core))
        if letter is None or wait.source // self.lnc == rank:
            return None
        i, source = letter.i, letter.source * self.lnc + core
        line = self.skeleton.programs[core].where(i.location)
        what = self.alone.described(i, letter.source)
        return Message(source, wait.core, CHANNEL, 0, None, what, line, letter.number)

    def _moved(
        self, place: _Ran, rank: int, begun: Sequence[Log], stops: Mapping[int, int]
    ) -> list[Wait]:
        """The waits of a rank whose cores stand where another's do."""
        by = (rank - place.rank) * self.lnc
        found = []
        for wait in place.rest:
            what, source = wait.what, wait.source + by
            if "group" in what:
                if id(what) not in self.equal:
                    self.equal[id(what)] = what, self.alone.groups_like(what["group"])
                group = self.equal[id(what)][1][rank]
                key = id(what), id(group)
                if key not in self.whats:
                    self.whats[key] = {**what, "group": list(group)}
                what = self.whats[key]
            lane = wait.core % self.lnc
            if lane in stops and wait.source // self.lnc != place.rank:
                i = self.by_ordinal[lane][begun[lane][stops[lane]]]
                source = self.alone.neighbours(i, rank)[1] * self.lnc + lane
            met = wait.met
            if met is not None:
                met = met._replace(source=met.source + by, target=met.target + by)
            found.append(wait._replace(core=wait.core + by, source=source, what=what, met=met))
        return found

    def progress(self) -> tuple[int, int]:
        """Instructions carried out and cores known to finish; any thread may ask."""
        current = self.current
        return self.done + (current.progress()[0] if current else 0), self.finished

    def _class(self, rank: int) -> Hashable:
        arrays = tuple([self._content(self.inputs[rank][index]) for index in self.with_contents])
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

    def _run(self, rank: int) -> _Ran:
        ran = [self._run_as(rank, end) for end in self.ends]
        if self.ends != (None,) and any(isinstance(r.error, OutOfBoundsError) for r in ran):
            self.ends = (None,)  # these ranks may not ask for those
            return self._run_as(rank, None)
        return next((r for r in ran if not r.ends), ran[0])

    def _run_until(self, rank: int, stops: Mapping[int, int]) -> _Ran:
        """A rank whose cores stop where they wait for others; see `Alone.stops`."""
        self.alone.stops = stops
        try:
            return self._run_as(rank, self.ends[0])
        finally:
            self.alone.stops = {}

    def _run_as(self, rank: int, as_rank: int | None) -> _Ran:
        slots = self.slots[rank * self.lnc : (rank + 1) * self.lnc]
        timeout, since = self.timeout
        self.alone.begun = [[] for _ in slots]
        ran = _Ran(rank)
        cores: DryCores | None = None
        try:
            cores = DryCores(
                slots, self.skeleton, self.inputs, timeout, self.alone.link, as_rank, since
            )
            self.current = cores
            ran.rest = cores.rest()
            ran.reports = sorted(cores.reports(), key=lambda r: r.core)
        except NkiError as error:
            if error.code == "timeout":
                raise
            ran.error = error
        self.done += sum(r.done for r in ran.reports)
        self.current = None
        self.by_rank |= cores is not None and cores.looked
        ran.begun = tuple(map(tuple, self.alone.begun))
        return ran

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
