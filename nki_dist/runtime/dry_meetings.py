"""Ranks that were run by themselves, and differ in their collectives: how far all of them come.

Known is in which order each rank would come to its collectives if nobody ever waited for another
rank. Collectives in which nobody gets on before all members have come are enough to tell from that
how far each comes when they do wait: a group goes on once all its members are in an equal operation
with an equal number, and nobody else's order matters. What all ranks have in common at first, all
of them complete. Rings and pairs, in which who sends goes on at once, aren't looked at beyond that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from nki_dist.collectives.alone import Alone
from nki_dist.collectives.execute import describe
from nki_dist.collectives.operands import belongs_to_rank
from nki_dist.collectives.operations import OPERATIONS, Kind
from nki_dist.program import Instruction

Log: TypeAlias = "tuple[int, ...]"  # ordinals of collectives
Lane: TypeAlias = "tuple[int, int]"  # a rank, and the core of it


class _Item(NamedTuple):
    """A collective of a core's program.

    Attributes:
        kind: equal for those that can meet.
    """

    i: Instruction
    kind: int


class Meetings:
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

    def reached(self, logs: Sequence[Sequence[Log]]) -> list[Mapping[int, int]] | None:
        """For each rank, by core: after how many collectives it waits for ever; None if unknown.

        Args:
            logs: for each rank, of each core of it.
        """
        distinct = {id(log): log for log in logs}.values()
        common = [_common([log[c] for log in distinct]) for c in range(len(self._items))]
        for log in distinct:
            for core, ordinals in enumerate(log):
                for ordinal in set(ordinals[common[core] :]):
                    kind = OPERATIONS[self._items[core][ordinal].i.opcode].kind
                    if kind in (Kind.RING, Kind.PAIRS):
                        return None
        return self._run(logs, common)

    def _run(self, logs: Sequence[Sequence[Log]], common: Sequence[int]) -> list[Mapping[int, int]]:
        cores = range(len(common))
        done = [Counter(logs[0][c][: common[c]]) for c in cores]
        at = {(r, c): common[c] for r in range(len(logs)) for c in cores}
        numbers: dict[Any, int] = {}
        there: dict[Any, list[tuple[Lane, Any]]] = defaultdict(list)
        going = list(at)
        while going:
            lane = rank, core = going.pop()
            log = logs[rank][core]
            if at[lane] == len(log):
                continue
            item = self._items[core][log[at[lane]]]
            group = self._alone.group(item.i, rank)
            if not group:
                at[lane] += 1
                going.append(lane)
                continue
            # Collectives of the rank and those of its core 0 are counted apart.
            count = rank, core, id(group), self._shared(item.i)
            if count not in numbers:
                numbers[count] = self._before(done[core], rank, item.i, core)
            here = there[id(group), core, item.kind, numbers[count]]
            here.append((lane, count))
            if len(here) == len(group):
                for each, number in here:
                    at[each] += 1
                    numbers[number] += 1
                    going.append(each)
                here.clear()
        return [
            {c: at[r, c] for c in cores if at[r, c] < len(logs[r][c])} for r in range(len(logs))
        ]

    def _shared(self, i: Instruction) -> bool:
        """Whether a collective is its rank's; see `collectives.execute`."""
        found = self._by_rank.get(id(i))
        if found is None:
            found = self._by_rank[id(i)] = belongs_to_rank(i, len(self._items))
        return found

    def _before(self, done: Counter[int], rank: int, i: Instruction, core: int) -> int:
        """How many collectives of its kind and group are over when those in common are."""
        group, shared = self._alone.group(i, rank), self._shared(i)
        others = ((self._items[core][ordinal].i, n) for ordinal, n in done.items())
        return sum(
            n
            for other, n in others
            if self._shared(other) == shared and self._alone.group(other, rank) == group
        )


def _common(logs: Sequence[Log]) -> int:
    """How many collectives all begin with."""
    shortest = min(map(len, logs))
    for n in range(shortest):
        if any(log[n] != logs[0][n] for log in logs):
            return n
    return shortest
