"""Matches what cores send each other in simulated time with who waits for it.

Messages are matched by (source, target, channel, sequence), as the cores themselves do; rendezvous
are in `rendezvous`. Invariant: an instruction that waits is finished exactly once, by whichever
core brings the last thing it waits for, so the order in which cores are replayed doesn't matter.

Doesn't model: contention of messages with the DMA traffic of either core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.isa.effects import Exchange
from nki_dist.timing.core import CoreReplay
from nki_dist.timing.exchange import Rule
from nki_dist.timing.rendezvous import OpenRendezvous, Rendezvous
from nki_dist.timing.timeline import Delivery, Seat

Waiting: TypeAlias = tuple[CoreReplay, int]  # an instruction that waits for other cores


class Messages:
    """The messages of a launch.

    Attributes:
        deliveries: those that arrived.
        met: the rendezvous that are over, by (core, position) of whoever took part.
    """

    def __init__(
        self,
        cores: Sequence[CoreReplay],
        seats: Sequence[Seat],
        arch: Arch,
        rules: Mapping[str, Rule],
    ) -> None:
        self.deliveries: list[Delivery] = []
        self.met: dict[tuple[int, int], Rendezvous] = {}
        self._cores = cores
        self._seats = seats
        self._arch = arch
        self._rules = rules
        self._sent: dict[tuple[int, int, str], list[tuple[float, float, int]]] = {}
        self._taken: dict[tuple[int, int, str], int] = {}
        self._waiting: dict[tuple[int, int], list[tuple[int, str, int]]] = {}
        self._awaited: dict[tuple[int, int, str, int], tuple[int, int]] = {}
        self._open = OpenRendezvous()

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
        what = rule(i, core.number, self._seats, self._arch)
        timeline = core.timeline
        timeline.start[at] = start
        timeline.end[at] = timeline.done[at] = start + what.busy_ns
        if what.meets:
            return self._meet(core, at, what)
        awaited = []
        for source in what.receives:
            key = (source, core.number, what.channel)
            sequence = self._taken.get(key, 0)
            self._taken[key] = sequence + 1
            awaited.append((source, what.channel, sequence))
        self._waiting[core.number, at] = awaited
        over: list[Waiting] = []
        for target in what.sends:
            over += self._send(
                core.number, target, what.channel, start, start + what.latency_ns, at
            )
        return over + self._collect(core, at)

    def describe(self) -> list[str]:
        """Who waits in vain, at the end."""
        lines = self._open.describe(self._cores)
        for (number, at), awaited in sorted(self._waiting.items()):
            i = self._cores[number].graph.executed[at]
            lines += [f"core {number} in {i!r} for core {s} ({ch})" for s, ch, _ in awaited]
        return lines

    def _meet(self, core: CoreReplay, at: int, what: Exchange) -> list[Waiting]:
        """Finish a rendezvous once the last core has come."""
        start = core.timeline.start[at]
        come = self._open.come(what.channel, what.meets, core.number, at, start, what.latency_ns)
        if come is None:
            return []
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

    def _send(
        self, source: int, target: int, channel: str, sent: float, arrived: float, at: int
    ) -> list[Waiting]:
        queue = self._sent.setdefault((source, target, channel), [])
        queue.append((sent, arrived, at))
        receiver = self._awaited.pop((source, target, channel, len(queue) - 1), None)
        if receiver is None:
            return []
        return self._collect(self._cores[receiver[0]], receiver[1])

    def _collect(self, core: CoreReplay, at: int) -> list[Waiting]:
        """Finish an exchange once everything it awaits has been sent."""
        awaited = self._waiting[core.number, at]
        for source, channel, sequence in awaited:
            if len(self._sent.get((source, core.number, channel), ())) <= sequence:
                self._awaited[source, core.number, channel, sequence] = (core.number, at)
                return []
        del self._waiting[core.number, at]
        timeline = core.timeline
        for source, channel, sequence in awaited:
            sent, arrived, theirs = self._sent[source, core.number, channel][sequence]
            self.deliveries.append(
                Delivery((source, theirs), (core.number, at), channel, sent, arrived)
            )
            if arrived > timeline.end[at]:
                timeline.busy_end.setdefault(at, timeline.end[at])
                timeline.end[at] = timeline.done[at] = arrived
                timeline.held[at] = (source, theirs)
        return [(core, at)]
