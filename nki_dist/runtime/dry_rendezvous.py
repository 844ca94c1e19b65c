"""Ranks that were run by themselves, and differ in their collectives: how far all of them come.

Known is in which order each rank would come to its collectives if nobody ever waited for another
rank. That is enough to tell how far each comes when they do wait: a group goes on once all its
members are in an equal operation with an equal number; in rings and pairs, in which nobody waits
but for one message, once that has come. What all ranks have in common at first, all of them
complete.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

from nki_dist.collectives.alone import Alone
from nki_dist.collectives.execute import describe
from nki_dist.collectives.operands import belongs_to_rank
from nki_dist.collectives.operations import OPERATIONS, Kind
from nki_dist.program import Instruction

Log: TypeAlias = "tuple[int, ...]"  # ordinals of collectives
Lane: TypeAlias = "tuple[int, int]"  # a rank, and the core of it


class Letter(NamedTuple):
    """A message of a ring or a pair.

    Attributes:
        kind: equal for operations that can meet.
        number: of the collective among those of its group.
        i: the collective.
        source: rank of the sender.
    """

    kind: int
    number: int
    i: Instruction
    source: int


class Reached(NamedTuple):
    """Where ranks wait for ever.

    Attributes:
        stops: for each rank, by core: after how many collectives it does.
        met: by rank and core, the message that it got in place of the one that is meant.
    """

    stops: Sequence[Mapping[int, int]]
    met: Mapping[Lane, Letter]


class Rendezvous:
    """The collectives of a world, with all its ranks on their way.

    Args:
        exchanges: for each core of a rank, instructions of its program that wait for others.
        logs: for each rank, of each core of it.
    """

    def __init__(
        self,
        alone: Alone,
        exchanges: Sequence[Sequence[Instruction]],
        logs: Sequence[Sequence[Log]],
    ) -> None:
        self._alone, self._logs = alone, logs
        self._cores = range(len(exchanges))
        self._items: list[dict[int, Instruction]] = [
            {i.ordinal: i for i in mine if i.opcode in OPERATIONS} for mine in exchanges
        ]
        self._kinds: dict[int, int] = {}  # by instruction; equal for those that can meet
        # Whether one is its rank's; see `collectives.execute`.
        self._shared = cache(partial(belongs_to_rank, cores=len(exchanges)))
        kinds: list[dict[str, Any]] = []
        for i in (i for items in self._items for i in items.values()):
            what = describe(i, ())
            if what not in kinds:
                kinds.append(what)
            self._kinds[id(i)] = kinds.index(what)
        distinct = {id(log): log for log in logs}.values()
        common = [_common([log[c] for log in distinct]) for c in self._cores]
        self._done = [Counter(logs[0][c][: common[c]]) for c in self._cores]
        self._at = {(r, c): common[c] for r in range(len(logs)) for c in self._cores}
        self._numbers: dict[Any, int] = {}
        self._there: dict[Any, list[tuple[Lane, Any]]] = defaultdict(list)
        self._letters: dict[Lane, dict[int, deque[Letter]]] = defaultdict(dict)  # by source
        self._awaits: dict[Any, tuple[Any, Letter]] = {}
        self._met: dict[Lane, Letter] = {}
        self._going = list(self._at)

    def reached(self) -> Reached | None:
        """How far all come; None if all come to their end and messages are left."""
        while self._going:
            lane = rank, core = self._going.pop()
            if self._at[lane] < len(self._logs[rank][core]):
                self._go(lane)
        stops = [
            {c: self._at[r, c] for c in self._cores if self._at[r, c] < len(log[c])}
            for r, log in enumerate(self._logs)
        ]
        for lane in ((rank, core) for rank, waiting in enumerate(stops) for core in waiting):
            i = self._next(lane)
            if OPERATIONS[i.opcode].kind not in (Kind.RING, Kind.PAIRS):
                self._read(lane, self._alone.group(i, lane[0]))
        left = any(letters for box in self._letters.values() for letters in box.values())
        return None if left and not any(stops) else Reached(stops, self._met)

    def _next(self, lane: Lane) -> Instruction:
        rank, core = lane
        return self._items[core][self._logs[rank][core][self._at[lane]]]

    def _go(self, lane: Lane) -> None:
        rank, core = lane
        i = self._next(lane)
        kind, group = self._kinds[id(i)], self._alone.group(i, rank)
        # Collectives of the rank and those of its core 0 are counted apart.
        count = lane, id(group), self._shared(i)
        if count not in self._numbers:  # how many of them are over when those in common are
            others = ((self._items[core][n], times) for n, times in self._done[core].items())
            self._numbers[count] = sum(
                times
                for other, times in others
                if self._shared(other) == self._shared(i)
                and self._alone.group(other, rank) == group
            )
        if OPERATIONS[i.opcode].kind in (Kind.RING, Kind.PAIRS):
            self._pass_on(lane, count, Letter(kind, self._numbers[count], i, rank))
        else:
            self._meet(lane, count, kind, group)

    def _go_on(self, lane: Lane, count: Any) -> None:
        self._at[lane] += 1
        self._numbers[count] += 1
        self._going.append(lane)

    def _meet(self, lane: Lane, count: Any, kind: int, group: tuple[int, ...]) -> None:
        here = self._there[id(group), lane[1], kind, self._numbers[count]]
        here.append((lane, count))
        if len(here) < len(group):
            return
        for each, _ in here:
            self._read(each, group)
        if not any(each in self._met for each, _ in here):
            for each, number in here:
                self._go_on(each, number)
            here.clear()

    def _read(self, lane: Lane, group: Collection[int]) -> None:
        """Letters that come before what it waits for."""
        for source, letters in sorted(self._letters.get(lane, {}).items()):
            if letters and source in group:
                self._met.setdefault(lane, letters[0])

    def _pass_on(self, lane: Lane, count: Any, mine: Letter) -> None:
        rank, core = lane
        target, source = self._alone.neighbours(mine.i, rank)
        if target != rank:
            self._letters[target, core].setdefault(rank, deque()).append(mine)
            waiting = self._awaits.pop(((target, core), rank), None)
            if waiting is not None:
                self._take((target, core), rank, *waiting)
        if source == rank:
            self._go_on(lane, count)
        else:
            self._take(lane, source, count, mine)

    def _take(self, lane: Lane, source: int, count: Any, mine: Letter) -> None:
        letters = self._letters[lane].get(source)
        if not letters:
            self._awaits[lane, source] = count, mine
            return
        letter = letters.popleft()
        if (letter.kind, letter.number) == (mine.kind, mine.number):
            self._go_on(lane, count)
        else:
            self._met[lane] = letter


def _common(logs: Sequence[Log]) -> int:
    """How many collectives all begin with."""
    shortest = min(map(len, logs))
    for n in range(shortest):
        if any(log[n] != logs[0][n] for log in logs):
            return n
    return shortest
