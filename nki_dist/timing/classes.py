"""Finds cores of a launch that do the same at the same time, so that one of each class is replayed.

A unit is the ranks that share HBM stacks, with all their cores; nothing but messages and rendezvous
connects units. Two units are of one class if

1. their cores execute the same (program and trip counts) from the same places within the unit;
2. each exchange of a core takes as long as that of the core in its place; and
3. who meets there, sends and receives is of the same classes, in the same numbers and order.

These classes are found by splitting: first by 1 and 2, then, as long as anything splits, by 3.
Where ranks sit only enters by what exchanges cost, which the launch's rules say for each core.

Why members of a class have the same times: a replay is a function of what a unit executes and of
when its messages arrive and its rendezvous are over. Take the first moment at which two units of
one class differ. Within a unit the same happens in the same order, because a unit's cores keep
their order, so an arrival or the end of a rendezvous was different. That is the latest of several
starts (1, 2) of cores of the same classes (3) before that moment, which were the same: a
contradiction.

What may differ between members, and why nobody sees it: the numbers of cores, which only decide
between events of different units at the same time, and those share nothing; and which of those who
start a rendezvous last, at the same time, comes first, which `by_representatives` works out for
real numbers. Where this isn't certain, there are no classes and all cores are replayed: cores of
one number in different ranks that execute other exchanges or in another order, groups so entangled
that a core would meet one class of groups under two names, messages that couldn't be counted by
class, or room on chip that is only found when everybody waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError
from nki_dist.isa.effects import Exchange
from nki_dist.program import Instruction
from nki_dist.timing.exchange import Rule, Seats
from nki_dist.timing.fixed import Part
from nki_dist.timing.timeline import Seat


@dataclass(frozen=True)
class Classes:
    """The classes of a launch's cores, numbered by their first members.

    Attributes:
        which: of each core, the number of its class.
        first: of each class, its first member, which is replayed.
        exchanges: of each class, by the identity of an instruction, whom it meets: numbers of
            classes instead of cores.
    """

    which: Sequence[int]
    first: Sequence[int]
    exchanges: Sequence[Mapping[int, Exchange]]


def find_classes(
    parts: Sequence[Part], seats: Seats, arch: Arch, rules: Mapping[str, Rule]
) -> Classes | None:
    """The classes of a launch, or None if there are no fewer than half as many, or none are sure.

    Args:
        parts: what each core executes ; equal ones are the same object.
        seats: where each sits.
    """
    units = _units(seats)
    if units is None or len(units) < 2:
        return None
    executed = _synchronising(parts, seats)
    if executed is None or any(i.opcode not in rules for each in executed.values() for i in each):
        return None
    once = {core: list({id(i): i for i in each}.values()) for core, each in executed.items()}
    try:
        exchanges = [
            [rules[i.opcode](i, n, seats, arch) for i in once[seat.core]]
            for n, seat in enumerate(seats)
        ]
    except LaunchError:
        return None  # the replay of all reports it
    splitting = _Splitting(units, parts, seats, exchanges)
    colours = splitting.colours() if splitting.even else None
    return None if colours is None else splitting.classes(colours, executed, once)


def _units(seats: Sequence[Seat]) -> list[list[int]] | None:
    """Cores by unit, or None if ranks and stacks are interlaced."""
    found: list[list[int]] = []
    by_rank: dict[int, int] = {}
    by_stack: dict[int, int] = {}
    for n, seat in enumerate(seats):
        one, other = by_rank.get(seat.rank), by_stack.get(seat.stack)
        unit = one if one is not None else other
        if unit is None:
            unit = len(found)
            found.append([])
        elif other is not None and other != unit:
            return None
        by_rank[seat.rank] = by_stack[seat.stack] = unit
        found[unit].append(n)
    return found


def _synchronising(
    parts: Sequence[Part], seats: Sequence[Seat]
) -> dict[int, list[Instruction]] | None:
    """What waits for others, as executed, by the number of a core within its rank; None if the
    ranks don't all execute the same."""
    found: dict[int, list[Instruction]] = {}
    seen: set[tuple[int, int]] = set()
    for part, seat in zip(parts, seats, strict=True):
        if (id(part), seat.core) in seen:
            continue
        seen.add((id(part), seat.core))
        executed = [i for i in part.graph.executed if part.fixed[i.ordinal].synchronises]
        if list(map(id, found.setdefault(seat.core, executed))) != list(map(id, executed)):
            return None
    return found


class _Splitting:
    """Splits units into classes.

    Attributes:
        rendezvous: by channel and cores, who meets there, with a number.
        met: of each core, the numbers of the rendezvous it takes part in.
        even: who comes last to a rendezvous is busy for as long as the others.
    """

    def __init__(
        self,
        units: Sequence[Sequence[int]],
        parts: Sequence[Part],
        seats: Sequence[Seat],
        exchanges: Sequence[Sequence[Exchange]],
    ) -> None:
        self.units, self.seats, self.exchanges = units, seats, exchanges
        self.members: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._cache: dict[tuple[str, int], tuple[int, Any]] = {}
        self._used: list[set[Hashable]] = []
        self.met: list[list[int]] = []
        self.partners: list[list[tuple[int, ...]]] = []
        self.even = True
        starts: list[Hashable] = []
        for part, mine, seat in zip(parts, exchanges, seats, strict=True):
            ids = list(map(id, mine))  # repeated ones are mostly the same object
            each = dict(zip(ids, mine, strict=True))
            order = tuple(_numbered(ids))
            costs, met, sides = [], [], []
            for n, e in enumerate(each.values()):
                costs.append((e.channel, e.busy_ns, e.latency_ns, len(e.sends), len(e.receives)))
                sides += [e.sends, e.receives]
                if e.meets:
                    met.append(self.number(e.channel, e.meets))
                    self._used[met[-1]].add((seat.core, n, order))
                    self.even &= e.busy_ns == e.latency_ns
            self.met.append(list(dict.fromkeys(met)))
            self.partners.append(list(dict.fromkeys(sides)))
            starts.append((id(part), seat.core, order, *costs))
        self.uses = _numbered([frozenset(each) for each in self._used])
        self._colours = _numbered([_start(unit, seats, starts) for unit in units])

    def number(self, channel: str, cores: tuple[int, ...]) -> int:
        """Which rendezvous that is; the same tuple is asked about again and again."""
        cached = self._cache.get((channel, id(cores)))
        if cached is None:
            number = self._numbers.setdefault((channel, cores), len(self.members))
            if number == len(self.members):
                self.members.append(cores)
                self._used.append(set())
            cached = self._cache[channel, id(cores)] = number, cores
        return cached[0]

    def colours(self) -> list[int] | None:
        """The class of each unit, or None if there are too many to be worth it."""
        most = len(self.units) // 2
        colours = self._colours
        while len(set(colours)) <= most:
            found = self._split(colours)
            if len(set(found)) == len(set(colours)):
                return found
            colours = found
        return None

    def of_cores(self, colours: Sequence[int]) -> list[int]:
        """The class of each core: that of its unit, and its place there."""
        widest = max(map(len, self.units))
        found = [0] * sum(map(len, self.units))
        for unit, colour in zip(self.units, colours, strict=True):
            for place, core in enumerate(unit):
                found[core] = colour * widest + place
        return found

    def of_rendezvous(self, cores: Sequence[int]) -> list[int]:
        """The class of each rendezvous: what it is used for, and by cores of which classes."""
        return _numbered(
            [
                (use, tuple(sorted(Counter([cores[m] for m in members]).items())))
                for use, members in zip(self.uses, self.members, strict=True)
            ]
        )

    def _split(self, colours: Sequence[int]) -> list[int]:
        cores = self.of_cores(colours)
        rendezvous = self.of_rendezvous(cores)
        sights: list[Hashable] = []
        for unit, colour in zip(self.units, colours, strict=True):
            seen: list[Any] = [colour]
            for n in unit:
                seen.append(tuple([rendezvous[number] for number in self.met[n]]))
                seen += [tuple([cores[other] for other in side]) for side in self.partners[n]]
            sights.append(tuple(seen))
        return _numbered(sights)

    def classes(
        self,
        colours: Sequence[int],
        executed: Mapping[int, Sequence[Instruction]],
        once: Mapping[int, Sequence[Instruction]],
    ) -> Classes | None:
        """The launch as classes that meet, or None where that could be ambiguous."""
        which = [0] * len(self.seats)
        first: list[int] = []
        places: dict[int, int] = {}  # by colour, the number of its first core
        for unit, colour in zip(self.units, colours, strict=True):
            if colour not in places:
                places[colour] = len(first)
                first += unit
            for place, core in enumerate(unit):
                which[core] = places[colour] + place
        rendezvous = self.of_rendezvous(self.of_cores(colours))
        found: list[dict[int, Exchange]] = []
        for core in first:
            mine = self.met[core]
            if len({rendezvous[number] for number in mine}) < len(mine):
                return None
            ids = map(id, once[self.seats[core].core])
            rename = partial(_renamed, which, lambda *meets: rendezvous[self.number(*meets)])
            found.append(dict(zip(ids, map(rename, self.exchanges[core]), strict=True)))
        orders = [executed[self.seats[core].core] for core in first]
        return Classes(which, first, found) if _counted(found, orders) else None


def _start(
    unit: Sequence[int], seats: Sequence[Seat], starts: Sequence[Hashable]
) -> tuple[Hashable, ...]:
    """What is known of a unit by itself: what its cores execute, and who shares rank and stack."""
    ranks = _numbered([seats[n].rank for n in unit])
    stacks = _numbered([seats[n].stack for n in unit])
    return tuple(zip([starts[n] for n in unit], ranks, stacks, strict=True))


def _numbered(values: Sequence[Hashable]) -> list[int]:
    """Equal values get equal numbers, in the order in which they appear."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(value, len(numbers)) for value in values]


def _renamed(
    which: Sequence[int], rendezvous: Callable[[str, tuple[int, ...]], int], e: Exchange
) -> Exchange:
    """An exchange with classes instead of cores; rendezvous keep apart by their class."""
    if e.meets:
        channel = f"{e.channel} {rendezvous(e.channel, e.meets)}"
        return replace(e, channel=channel, meets=tuple(sorted({which[m] for m in e.meets})))
    sends, receives = (tuple([which[n] for n in side]) for side in (e.sends, e.receives))
    return replace(e, sends=sends, receives=receives)


def _counted(
    exchanges: Sequence[Mapping[int, Exchange]], orders: Sequence[Sequence[Instruction]]
) -> bool:
    """Whether what a class sends another, one time after the other, is what that one awaits."""
    sent: dict[tuple[str, int, int], list[int]] = {}
    awaited: dict[tuple[str, int, int], list[int]] = {}
    for number, (mine, order) in enumerate(zip(exchanges, orders, strict=True)):
        for i in order:
            e = mine[id(i)]
            for to, n in Counter(e.sends).items():
                sent.setdefault((e.channel, number, to), []).append(n)
            for source, n in Counter(e.receives).items():
                awaited.setdefault((e.channel, source, number), []).append(n)
    return sent == awaited
