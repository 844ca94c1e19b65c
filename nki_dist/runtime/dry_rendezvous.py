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


class _Item(NamedTuple):
    """A collective of a core's program.

    Attributes:
        kind: equal for those that can meet.
    """

    i: Instruction
    kind: int


class Rendezvous:
    """Collectives of a world.

    Args:
        exchanges: for each core of a rank, instructions of its program that wait for others.
    """

    def __init__(self, alone: Alone, exchanges: Sequence[Sequence[Instruction]]) -> None:
        self._alone = alone
        self._items: list[dict[int, _Item]] = []
        self._by_rank: dict[int, bool] = {}
        kinds: list[dict[str, Any]] = []
        for mine in exchanges:
            items: dict[int, _Item] = {}
            for i in mine:
                if i.opcode in OPERATIONS:
                    what = describe(i, ())
                    if what not in kinds:
                        kinds.append(what)
                    items[i.ordinal] = _Item(i, kinds.index(what))
            self._items.append(items)

    def reached(self, logs: Sequence[Sequence[Log]]) -> Reached | None:
        """How far all come; None if all come to their end and messages are left.

        Args:
            logs: for each rank, of each core of it.
        """
        distinct = {id(log): log for log in logs}.values()
        common = [_common([log[c] for log in distinct]) for c in range(len(self._items))]
        walk = _Walk(self, logs, common)
        walk.run()
        return walk.reached()

    def item(self, core: int, ordinal: int) -> _Item:
        return self._items[core][ordinal]

    def group(self, i: Instruction, rank: int) -> tuple[int, ...]:
        return self._alone.group(i, rank)

    def neighbours(self, i: Instruction, rank: int) -> tuple[int, int]:
        return self._alone.neighbours(i, rank)

    def shared(self, i: Instruction) -> bool:
        """Whether a collective is its rank's; see `collectives.execute`."""
        found = self._by_rank.get(id(i))
        if found is None:
            found = self._by_rank[id(i)] = belongs_to_rank(i, len(self._items))
        return found

    def before(self, done: Counter[int], rank: int, i: Instruction, core: int) -> int:
        """How many collectives of its kind and group are over when those in common are."""
        group, shared = self._alone.group(i, rank), self.shared(i)
        others = ((self._items[core][ordinal].i, n) for ordinal, n in done.items())
        return sum(
            n
            for other, n in others
            if self.shared(other) == shared and self._alone.group(other, rank) == group
        )


class Reached(NamedTuple):
    """Where ranks wait for ever.

    Attributes:
        stops: for each rank, by core: after how many collectives it does.
        met: by rank and core, the message that it got in place of the one that is meant.
    """

    stops: Sequence[Mapping[int, int]]
    met: Mapping[Lane, Letter]


class _Walk:
    """All ranks on their way.

    Args:
        common: for each core of a rank, how many collectives all begin with.
    """

    def __init__(
        self, rendezvous: Rendezvous, logs: Sequence[Sequence[Log]], common: Sequence[int]
    ) -> None:
        self._rendezvous, self._logs = rendezvous, logs
        self._cores = range(len(common))
        self._done = [Counter(logs[0][c][: common[c]]) for c in self._cores]
        self._at = {(r, c): common[c] for r in range(len(logs)) for c in self._cores}
        self._numbers: dict[Any, int] = {}
        self._there: dict[Any, list[tuple[Lane, Any]]] = defaultdict(list)
        self._letters: dict[Lane, dict[int, deque[Letter]]] = defaultdict(dict)  # by source
        self._awaits: dict[Any, tuple[Any, Letter]] = {}
        self._met: dict[Lane, Letter] = {}
        self._going = list(self._at)

    def run(self) -> None:
        while self._going:
            lane = rank, core = self._going.pop()
            log = self._logs[rank][core]
            if self._at[lane] == len(log):
                continue
            i, kind = self._rendezvous.item(core, log[self._at[lane]])
            group = self._rendezvous.group(i, rank)
            # Collectives of the rank and those of its core 0 are counted apart.
            count = lane, id(group), self._rendezvous.shared(i)
            if count not in self._numbers:
                before = self._rendezvous.before(self._done[core], rank, i, core)
                self._numbers[count] = before
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
        target, source = self._rendezvous.neighbours(mine.i, rank)
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

    def reached(self) -> Reached | None:
        stops = [
            {c: self._at[r, c] for c in self._cores if self._at[r, c] < len(log[c])}
            for r, log in enumerate(self._logs)
        ]
        for rank, waiting in enumerate(stops):
            for core in waiting:
                i, _ = self._rendezvous.item(core, self._logs[rank][core][waiting[core]])
                if OPERATIONS[i.opcode].kind not in (Kind.RING, Kind.PAIRS):
                    self._read((rank, core), self._rendezvous.group(i, rank))
        left = any(letters for box in self._letters.values() for letters in box.values())
        return None if left and not any(stops) else Reached(stops, self._met)


def _common(logs: Sequence[Log]) -> int:
    """How many collectives all begin with."""
    shortest = min(map(len, logs))
    for n in range(shortest):
        if any(log[n] != logs[0][n] for log in logs):
            return n
    return shortest
