"""Gives all cores their times where one core of each class, its representative, was replayed.

See `classes` for why that is the same. Times are those of the first member of a class. What a
timeline says of other cores (who held an instruction up, what was delivered) has the numbers of
real cores; all of it at once is only worked out, by a replay of all cores, when somebody asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from nki_dist.errors import LaunchError
from nki_dist.forks import cached_property
from nki_dist.isa.effects import Exchange
from nki_dist.timing.classes import Classes, find_classes
from nki_dist.timing.events import Events
from nki_dist.timing.exchange import Seats
from nki_dist.timing.timeline import CoreTimeline, Delivery, Timeline


def by_representatives(launch: Any) -> RepresentedTimeline | None:
    """The timeline of a launch (`replay.Launch`), or None if all its cores must be replayed."""
    found = find_classes(launch.parts, launch.seats, launch.arch, launch.exchanges)
    if found is None:
        return None

    def rule(i: Any, me: int, *_: Any) -> Exchange:
        return found.exchanges[me][id(i)]

    parts = [launch.parts[core] for core in found.first]
    seats = Seats(launch.seats[core] for core in found.first)
    events = Events(parts, seats, launch.arch, dict.fromkeys(launch.exchanges, rule))
    try:
        timeline = events.run()
    except LaunchError:  # messages that are never sent: the replay of all names cores
        return None
    return RepresentedTimeline(launch, found, timeline, events)


class RepresentedTimeline(Timeline):
    """See the module's docstring."""

    def __init__(self, launch: Any, found: Classes, timeline: Timeline, events: Events) -> None:
        self.arch = launch.arch
        self.schedule = launch.schedule
        self.launch = launch
        self._classes = found
        self._distinct = timeline.cores
        self._met = events.messages.met
        self._seen: dict[int, CoreTimeline] = {}

    @cached_property
    def _whole(self) -> Timeline:
        whole: Timeline = self.launch.replayed()
        return whole

    @property
    def cores(self) -> list[CoreTimeline]:  # type: ignore[override]
        return self._whole.cores

    @property
    def deliveries(self) -> list[Delivery]:  # type: ignore[override]
        return self._whole.deliveries

    @property
    def distinct(self) -> list[CoreTimeline]:
        return self._distinct

    @property
    def which(self) -> list[int]:
        return list(self._classes.which)

    @property
    def stacks(self) -> int:
        return len({seat.stack for seat in self.launch.seats})

    def core(self, number: int) -> CoreTimeline:
        """One core, with the numbers of those that it waited for."""
        found = self._seen.get(number)
        if found is None:
            found = self._seen[number] = copy(self._distinct[self._classes.which[number]])
            found.seat = self.launch.seats[number]
            found.cause = [None if cause is None else (number, cause[1]) for cause in found.cause]
            found.held, found.busy_end = dict(found.held), dict(found.busy_end)
            self._hold(found, number)
        return found

    def _hold(self, core: CoreTimeline, number: int) -> None:
        """Say who held instructions up: of several that were last, the first core did."""
        launch, which = self.launch, self._classes.which
        mine = which[number]
        for at, i in enumerate(core.graph.executed):
            rendezvous = self._met.get((mine, at))
            if rendezvous is None and at not in core.held:
                continue
            e = launch.exchanges[i.opcode](i, number, launch.seats, launch.arch)
            if rendezvous is None:  # messages: the first of those that came last
                of_class, theirs = core.held[at]
                core.held[at] = next(n for n in e.receives if which[n] == of_class), theirs
                continue
            where = dict(rendezvous.who)
            last = self._last(e.meets, where)
            if last == number:
                core.held.pop(at, None)
                core.busy_end.pop(at, None)
            else:
                core.held[at] = last, where[which[last]]
                core.busy_end[at] = core.start[at] + e.busy_ns

    def _last(self, cores: Sequence[int], where: Mapping[int, int]) -> int:
        """Who of a rendezvous started last; the first of them.

        Args:
            where: by class, the position of the instruction that meets.
        """
        which, distinct = self._classes.which, self._distinct
        starts = {n: distinct[n].start[at] for n, at in where.items()}
        latest = max(starts.values())
        return next(n for n in sorted(cores) if starts[which[n]] == latest)
