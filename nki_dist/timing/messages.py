"""Matches what cores send each other in simulated time with who waits for it.

Messages are matched by (source, target, channel, sequence), as the cores themselves do. At a
rendezvous, whoever comes last decides for all: the n-th of one core on a channel with certain cores
is the n-th of each of them. That they did the same thing there was checked when it ran.

Invariant: an instruction that waits is finished exactly once, by whichever core brings the last
thing it waits for, so the order in which cores are replayed doesn't matter.

Doesn't model: contention of messages with the DMA traffic of either core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.isa.effects import Exchange
from nki_dist.timing.core import CoreReplay
from nki_dist.timing.exchange import Rule, Seats
from nki_dist.timing.timeline import Delivery

Waiting: TypeAlias = tuple[CoreReplay, int]  # an instruction that waits for other cores
Place: TypeAlias = tuple[int, int]  # core and position
Key: TypeAlias = tuple[int, int, str, int]  # of a message: source, target, channel, sequence


@dataclass
class Rendezvous:
    """One rendezvous.

    Attributes:
        who: (core, position), in the order they came.
        last: the one that started last; the lowest number of those that did at the same time.
        started: when it did.
        over: when everybody is done.
    """

    who: list[Place] = field(default_factory=list)
    last: Place = (-1, -1)
    started: float = -1.0
    over: float = 0.0


class Messages:
    """The messages of a launch.

    Attributes:
        deliveries: those that arrived.
        met: the rendezvous that are over, by (core, position) of whoever took part.
    """

    def __init__(
        self,
        cores: Sequence[CoreReplay],
        seats: Seats,
        arch: Arch,
        rules: Mapping[str, Rule],
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.met: dict[Place, Rendezvous] = {}
        self._cores, self._seats, self._arch, self._rules = cores, seats, arch, rules
        self._counts = Counter[Hashable]()  # of what was sent, awaited and met
        self._sent: dict[Key, tuple[float, float, int]] = {}  # sent, arrived, position
        self._waiting: dict[Place, list[Key]] = {}
        self._awaited: dict[Key, Place] = {}
        self._open: dict[tuple[str, tuple[int, ...], int], Rendezvous] = {}

    def exchange(self, core: CoreReplay, at: int, start: float) -> list[Waiting]:
        """An instruction that waits for other cores begins; those that have their end by that.

        Raises:
            LaunchError: there is no rule for it.
        """
        i = core.graph.executed[at]
        rule = self._rules.get(i.opcode)
        if rule is None:
            raise LaunchError(
                f"no timing rule for nisa.{i.opcode}; rules exist for {', '.join(self._rules)}",
                location=core.graph.program.where(i.location),
                code="profile-rule",
            )
        what, me = rule(i, core.number, self._seats, self._arch), core.number
        timeline = core.timeline
        timeline.start[at] = start
        timeline.end[at] = timeline.done[at] = start + what.busy_ns
        if what.meets:
            return self._meet(core, at, what)
        awaited = [
            (source, me, what.channel, self._next("taken", source, me, what.channel))
            for source in what.receives
        ]
        self._waiting[me, at] = awaited
        over: list[Waiting] = []
        for target in what.sends:
            key = me, target, what.channel, self._next("sent", me, target, what.channel)
            self._sent[key] = start, start + what.latency_ns, at
            if key in self._awaited:
                over += self._collect(*self._awaited.pop(key))
        return over + self._collect(me, at)

    def _next(self, *what: Hashable) -> int:
        """How often that was counted before."""
        number = self._counts[what]
        self._counts[what] = number + 1
        return number

    def describe(self) -> list[str]:
        """Who waits in vain, at the end."""
        lines = []
        for (channel, cores, _), rendezvous in sorted(self._open.items()):
            missing = sorted(set(cores) - {core for core, _ in rendezvous.who})
            lines += [
                f"{self._told(who)} for cores {missing} ({channel})"
                for who in sorted(rendezvous.who)
            ]
        for who, awaited in sorted(self._waiting.items()):
            lines += [f"{self._told(who)} for core {s} ({ch})" for s, _, ch, _ in awaited]
        return lines

    def _told(self, who: Place) -> str:
        return f"core {who[0]} in {self._cores[who[0]].graph.executed[who[1]]!r}"

    def _meet(self, core: CoreReplay, at: int, what: Exchange) -> list[Waiting]:
        """A core has come to a rendezvous, which ends once it was the last to come."""
        who, start = (core.number, at), core.timeline.start[at]
        key = what.channel, what.meets, self._next(what.channel, what.meets, core.number)
        come = self._open.setdefault(key, Rendezvous())
        come.who.append(who)
        if (start, -core.number) > (come.started, -come.last[0]):
            come.last, come.started = who, start
        come.over = max(come.over, start + what.latency_ns)
        if len(come.who) < len(what.meets):
            return []
        come.who.sort()
        del self._open[key]
        self.met.update(dict.fromkeys(come.who, come))
        for number, theirs in come.who:
            timeline = self._cores[number].timeline
            if (number, theirs) != come.last:
                timeline.busy_end[theirs] = timeline.end[theirs]
                timeline.held[theirs] = come.last
                self.deliveries.append(
                    Delivery(come.last, (number, theirs), what.channel, come.started, come.over)
                )
            timeline.end[theirs] = timeline.done[theirs] = come.over
        return [(self._cores[number], theirs) for number, theirs in come.who]

    def _collect(self, number: int, at: int) -> list[Waiting]:
        """Finish an exchange once everything it awaits has been sent."""
        awaited = self._waiting[number, at]
        for key in awaited:
            if key not in self._sent:
                self._awaited[key] = number, at
                return []
        del self._waiting[number, at]
        timeline = self._cores[number].timeline
        for key in awaited:
            sent, arrived, theirs = self._sent.pop(key)
            source = key[0], theirs
            self.deliveries.append(Delivery(source, (number, at), key[2], sent, arrived))
            if arrived > timeline.end[at]:
                timeline.busy_end.setdefault(at, timeline.end[at])
                timeline.end[at] = timeline.done[at] = arrived
                timeline.held[at] = source
        return [(self._cores[number], at)]
